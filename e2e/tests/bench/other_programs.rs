//! The names memtier_benchmark and mcblaster: existing command lines work unchanged, and scripts
//! find the tables that they read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use testkit::server::holdall_path;
use testkit::{Kind, Launch};

/// Runs a command line whose first word is a link to the program, and returns the standard output.
#[track_caller]
fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("other-programs");
    fs::create_dir_all(&folder).unwrap();
    let link = folder.join(name);
    if !link.exists() {
        symlink(holdall_path().canonicalize().unwrap(), &link).unwrap();
    }
    let output = Command::new(&link).args(words).current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The cells of a table's line, split as by `awk`.
#[track_caller]
fn cells<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.starts_with(first)).unwrap_or_else(|| {
        panic!("no line of {first}: {text}");
    });
    line.split_whitespace().collect()
}

#[test]
fn memtier_command_lines_print_its_table() {
    let server = Launch::new(Kind::Memcached).start();
    let port = server.addr().port();
    // The study's command line, with a time limit.
    let text = run(&format!(
        "memtier_benchmark -s 127.0.0.1 -p {port} -c 6 -t 2 -P memcache_binary --random-data \
         --key-minimum=100 --key-maximum=10000 --test-time=1"
    ));
    assert!(
        text.starts_with(
            "2         Threads\n6         Connections per thread\n1         Seconds\n"
        )
    );
    let head = cells(&text, "Type  ").join(" ");
    let wanted = "Type Ops/sec Hits/sec Misses/sec Avg. Latency p50 Latency p99 Latency p99.9 Latency KB/sec";
    assert_eq!(head, wanted);
    let number = |cell: &str| cell.parse::<f64>().unwrap();
    let [sets, gets, totals] = ["Sets", "Gets", "Totals"].map(|name| cells(&text, name));
    assert_eq!((&sets[2..4], sets.len(), totals.len()), (&["---", "---"][..], 9, 9));
    // One set per ten gets; hits and misses add up to the gets; rates add up.
    assert!((number(gets[1]) / number(sets[1]) - 10.0).abs() < 0.5, "{text}");
    assert!((number(gets[2]) + number(gets[3]) - number(gets[1])).abs() < 0.05, "{text}");
    assert!((number(sets[1]) + number(gets[1]) - number(totals[1])).abs() < 0.05, "{text}");
    for row in [&sets, &gets, &totals] {
        let latencies: Vec<f64> = row[5..8].iter().map(|cell| number(cell)).collect();
        assert!(latencies.is_sorted() && number(row[4]) > 0.0 && number(row[8]) > 0.0, "{text}");
    }
    assert!(text.contains("\nRequest Latency Distribution\nType     <= msec         Percent\n"));
    let last = text.lines().rfind(|line| line.starts_with("GET ")).unwrap();
    assert!(last.ends_with(" 100.000"), "{last}");
    // Several runs, other percentiles, files, no distribution.
    let text = run(&format!(
        "memtier_benchmark --server=127.0.0.1 --port={port} --protocol=memcache_text --clients=2 \
         --threads=1 --requests=200 --ratio=1:1 --key-pattern=S:S --key-maximum=100 --data-size=64 \
         --pipeline=4 --hide-histogram --run-count=2 --print-all-runs --print-percentiles=50,95 \
         --json-out-file=m.json --out-file=m.txt"
    ));
    assert_eq!(text, "");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("other-programs");
    let text = fs::read_to_string(folder.join("m.txt")).unwrap();
    for title in [
        "RUN #1 RESULTS",
        "RUN #2 RESULTS",
        "BEST RUN RESULTS",
        "WORST RUN RESULTS",
        "AGGREGATED AVERAGE RESULTS (2 runs)",
    ] {
        assert!(text.contains(&format!("\n{title}\n====")), "{title}: {text}");
    }
    assert!(text.contains("p50 Latency     p95 Latency ") && !text.contains("Distribution"));
    let json = fs::read_to_string(folder.join("m.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["RUN #2 RESULTS"]["Totals"]["Count"], 400);
}

#[test]
fn mcblaster_command_lines_print_its_figures() {
    let server = Launch::new(Kind::Memcached).start();
    let port = server.addr().port();
    // The command lines of "Enhancing the Scalability of Memcached", 4.2.2, shorter.
    let filled =
        run(&format!("mcblaster -p {port} -t 2 -z 64 -k 1000 -r 10 -W 1000 -d 1 127.0.0.1"));
    let asked = run(&format!("mcblaster -p {port} -t 2 -z 64 -k 1000 -r 1000 -W 0 -d 1 127.0.0.1"));
    assert!(filled.contains("get stats:\n") && filled.contains("set stats:\n"));
    assert!(asked.contains("get stats:\n") && !asked.contains("set stats:\n"));
    let value = |name: &str| {
        let line = asked.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {asked}")).trim().to_owned()
    };
    let sent: u64 = value("Requests sent:").parse().unwrap();
    let rate: f64 = value("Rate per second:").parse().unwrap();
    assert!((900..=1100).contains(&sent) && rate > 0.0, "{asked}");
    assert_eq!((value("Errors:"), value("Invalid replies:")), ("0".into(), "0".into()));
    let times = value("RTT min/avg/max:");
    let times: Vec<f64> =
        times.trim_end_matches(" usec").split('/').map(|time| time.parse().unwrap()).collect();
    assert!(times.len() == 3 && times.is_sorted(), "{times:?}");
    // Every request is in a bucket.
    let bucketed = asked.lines().filter(|line| line.starts_with('[') || line.starts_with("Over "));
    let counts = bucketed.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(counts.sum::<u64>(), sent, "{asked}");
}
