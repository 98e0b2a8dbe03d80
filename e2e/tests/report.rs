//! The report in a real browser: every chart has legible letters and points that show their values,
//! the console is silent, a phone shows it without horizontal scrolling, in light and dark mode,
//! and axe finds nothing serious.
//!
//! `SHOTS=FOLDER` keeps screenshots.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use testkit::server::holdall_path;
use testkit::{Kind, Launch, Server};

/// Runs `holdall bench` with these words, in `folder`, which also has the program: pages show
/// command lines as typed.
#[track_caller]
fn bench(folder: &Path, words: &str) {
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    bench_words(folder, &words);
}

#[track_caller]
fn bench_words(folder: &Path, words: &[String]) {
    let own = env::var_os("PATH").unwrap_or_default();
    let path = [folder.to_owned()].into_iter().chain(env::split_paths(&own));
    let mut command = Command::new("holdall");
    command.env("PATH", env::join_paths(path).unwrap());
    command.arg("bench").args(words).current_dir(folder);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {text}");
}

/// The steps of the study that figures 1 to 7 need, in seconds.
fn study(folder: &Path) {
    let start = "--keys 1000 --time 0.2 --preload --server-threads 2 --start memcached#-u#nobody#-p#{port}#-t#{threads}#-R#{group}";
    for (name, words) in [
        ("connections", "connections 1,4,16"),
        ("pinned", "connections 1,4,16 --pin-servers"),
        ("threads", "threads 1,2,4"),
        ("group", "group 1,20,100"),
    ] {
        let all: Vec<String> = format!("sweep {words} {start} --json memcached-{name}.json")
            .split(' ')
            .map(|word| word.replace('#', " "))
            .collect();
        bench_words(folder, &all);
    }
    let files =
        ["connections", "pinned", "threads", "group"].map(|name| format!("memcached-{name}.json"));
    bench(folder, &format!("report {} --paper pavlik --out study.html", files.join(" ")));
    let page = fs::read_to_string(folder.join("study.html")).unwrap();
    for number in 1..=7 {
        assert!(
            page.contains(&format!("<section id=\"figure-{number}\"><h2>Figure {number}: ")),
            "{number}"
        );
    }
    assert!(page.contains("520,000 pinned, 475,000 not") && page.contains("memcached, pinned"));
}

#[test]
fn the_report_is_readable_in_a_browser() {
    let mut server = Server::under_test(&[]);
    let address = server.addr().to_string();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    symlink(holdall_path().canonicalize().unwrap(), folder.join("holdall")).unwrap();
    let load = format!("-s {address} --keys 1000 --warm-up 0.1");
    bench(&folder, &format!("run {load} --preload --time 3.2 --json a.json"));
    bench(&folder, &format!("run {load} --rate 5000 --time 3.2 --json b.json"));
    let other = Launch::new(Kind::Memcached).start();
    for (name, address) in [("ours", &address), ("memcached", &other.addr().to_string())] {
        let sweep = format!("-s {address} --keys 1000 --time 0.2 --repeats 2 --json {name}.json");
        bench(&folder, &format!("sweep connections 1,2,4,8,16,32 {sweep}"));
    }
    bench(&folder, "hitrate -n 50000 -m 4,8,16 --servers holdall,memcached --json h.json");
    let files = "a.json b.json ours.json memcached.json h.json";
    bench(&folder, &format!("report {files} --out report.html --svg svg"));
    study(&folder);
    bench(&folder, "compare a.json b.json --html compare.html");
    server.assert_alive("the bench");
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    let whole_path = holdall_path().canonicalize().unwrap().display().to_string();
    assert!(page.contains("<code>holdall bench run -s 127.0.0.1:") && !page.contains(&whole_path));
    // Both sweeps in one chart, with their files' names.
    let joint = "svg/all-throughput-by-connections-of-each-generator-thread-all-servers.svg";
    let joint = fs::read_to_string(folder.join(joint)).unwrap();
    for name in ["ours", "memcached"] {
        assert!(joint.lines().any(|line| line == name), "{name} is not named");
        assert!(page.contains(&format!("<h2>{name}</h2>")));
    }
    // Servers are compared by memory limit and by memory use.
    assert!(page.contains("Miss ratio by resident memory") && page.contains(" MB resident</td>"));
    // The summary comes first, in whole sentences.
    let summary = page.find("<h2>Summary</h2>").unwrap();
    assert!(summary < page.find("<svg").unwrap());
    for fact in
        ["<dt>Machine</dt>", "<dt>Date</dt>", "<dt>Loop</dt><dd>closed, open</dd>", "<dt>Hits</dt>"]
    {
        assert!(page.contains(fact), "{fact}");
    }
    assert!(page.contains("most requests a second with p99 below 1 ms"));
    assert!(page.contains("<dt>Server versions</dt>"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/browser/check_report.mjs");
    let mut command = Command::new("node");
    command.arg(script).args(["report.html", "study.html", "compare.html"]).current_dir(&folder);
    if let Some(shots) = env::var_os("SHOTS") {
        command.arg("--shots").arg(shots);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.trim_end().ends_with("checks passed"), "{text}");
}
