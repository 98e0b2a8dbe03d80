//! Whole studies, and other programs' command lines, as a user runs them.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use common::{Running, Scratch, holdall, output, stderr, stdout};

/// Runs a study and returns its report.
fn study(name: &str, servers: &str, words: &[&str]) -> String {
    let scratch = Scratch::new();
    let folder = scratch.text("study");
    let common = ["bench", "study", name, "--quick", "--servers", servers, "--out", &folder];
    let common = [&common[..], &["--json", "-"]].concat();
    let output = output(&mut holdall(&[&common[..], words].concat()));
    assert!(output.status.success(), "{name}: {}\n{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("holdall bench s"), "each step is shown as a command");
    let told: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&told["schema"], &told["study"]), (&"holdall-bench-study".into(), &name.into()));
    let steps = told["steps"].as_array().unwrap();
    assert!(!steps.is_empty());
    for step in steps {
        assert!(step["error"].is_null(), "{step}");
        assert!(Path::new(step["file"].as_str().unwrap()).is_file(), "{step}");
    }
    fs::read_to_string(told["report"].as_str().unwrap()).unwrap()
}

#[test]
fn pavliks_study_has_its_figures() {
    let html = study("pavlik", "holdall,redis", &[]);
    for words in [
        "Figure 1: latency against throughput",
        "Figure 2: throughput and latency by connections",
        "Figure 3: processor time by connections",
        "Figure 4: throughput and latency by server threads",
        "Figure 5: processor time by server threads",
        "Figure 6: latency against throughput, threads pinned and not",
        "Figure 7: throughput and latency by requests per turn (-R)",
        "redis-connections",
    ] {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn the_guide_study_has_scores_and_power() {
    let html = study("intel-guide", "holdall", &["--power", "60"]);
    for words in ["Overall performance", "Performance per watt", "<th>under p99.5"] {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn the_bag_lru_study_finds_the_most_gets_by_threads() {
    let html = study("baglru", "holdall", &[]);
    for words in ["Most gets under the bound", "holdall-2-threads", "holdall-rate"] {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn a_failed_step_is_reported_and_the_others_run() {
    let scratch = Scratch::new();
    let folder = scratch.text("study");
    let words = ["bench", "study", "intel-guide", "--quick", "--servers", "memcached"];
    let run =
        |more: &[&str]| output(&mut holdall(&[&words[..], &["--out", &folder], more].concat()));
    let output = run(&["--power", "csv:/nowhere.csv"]);
    assert!(!output.status.success(), "{}", stdout(&output));
    assert!(stderr(&output).contains("memcached:"), "{}", stderr(&output));
}

#[test]
fn memtier_command_lines_and_json_are_supported() {
    let (server, scratch) = (Running::serve(&[]), Scratch::new());
    let port = server.port("TCP INET").to_string();
    let (link, json) = (scratch.text("memtier_benchmark"), scratch.text("m.json"));
    symlink(env!("CARGO_BIN_EXE_holdall"), &link).unwrap();
    let words = ["-s", "127.0.0.1", "-p", &port, "-P", "memcache_text", "-n", "100", "-c", "3"];
    let more = ["-t", "2", "--random-data", "--key-maximum=99", "--json-out-file", &json];
    let percentiles = "--print-percentiles=90,99.99,99.999";
    let output = output(Command::new(&link).args(words).args(more).arg(percentiles));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("--random-data changes nothing"));
    let text = fs::read_to_string(&json).unwrap();
    // As a dashboard would look for it: 100 requests of each of 6 clients.
    assert!(
        text.contains("\"Format version\": 2") && text.contains("\"Requests per client\": 100")
    );
    let totals = text.split("\"Totals\"").nth(1).unwrap();
    assert!(totals.contains("\"Count\": 600"), "{totals}");
    assert!(text.contains("\"Compressed Histogram\": \"HISTFAAA"));
    for name in ["ALL STATS", "Runtime", "Sets", "Gets", "Waits", "Hits/sec", "p99.99", "<=msec"] {
        assert!(text.contains(&format!("\"{name}\"")), "{name}");
    }
    assert!(text.contains("\"p99.999\""), "{text}");
    let said = stdout(&output);
    let head = said.lines().find(|line| line.starts_with("Type         Ops/sec")).unwrap();
    assert!(head.contains("p90 Latency") && head.contains("p99.999 Latency"), "{said}");
    assert!(said.lines().any(|line| line.starts_with("Totals ")), "{said}");
    let refused = common::output(&mut holdall(&["bench", "memtier", "--cluster-mode"]));
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("cannot be done here"), "{}", stderr(&refused));
    let help = common::output(&mut holdall(&["bench", "memtier", "--help"]));
    assert!(stdout(&help).contains("memtier_benchmark's command line"));
}

#[test]
fn mcblaster_command_lines_are_supported() {
    let (server, scratch) = (Running::serve(&[]), Scratch::new());
    let port = server.port("TCP INET").to_string();
    let link = scratch.text("mcblaster");
    symlink(env!("CARGO_BIN_EXE_holdall"), &link).unwrap();
    let words = ["-p", &port, "-t", "1", "-z", "64", "-k", "1000", "-r", "500", "-W", "1500"];
    let output = output(Command::new(&link).args(words).args(["-d", "0.5", "127.0.0.1"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    // 500 gets and 1,500 sets a second for half a second.
    let sent = |kind: &str| -> u64 {
        let rest = said.split(&format!("{kind} stats:")).nth(1).unwrap();
        let line = rest.lines().find_map(|line| line.strip_prefix("Requests sent: ")).unwrap();
        line.parse().unwrap()
    };
    let (gets, sets) = (sent("get"), sent("set"));
    assert!((800..=1200).contains(&(gets + sets)) && sets > 2 * gets, "{said}");
}
