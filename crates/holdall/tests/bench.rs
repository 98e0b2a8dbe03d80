//! `holdall bench` as a user runs it, against a server of our own.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;

use common::{Running, Scratch, holdall, output, stderr, stdout};

fn bench(arguments: &[&str]) -> std::process::Output {
    output(&mut holdall(&[&["bench"], arguments].concat()))
}

#[test]
fn a_run_a_sweep_and_their_report() {
    let (server, scratch) = (Running::serve(&[]), Scratch::new());
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let (run, sweep, page) =
        (scratch.text("run.json"), scratch.text("sweep.json"), scratch.text("page.html"));
    for protocol in ["text", "meta", "binary"] {
        let load =
            ["--preload", "--keys", "500", "--multiget", "3", "--verify", "--value-size", "1-3000"];
        let common = [
            "run",
            "-s",
            &address,
            "-p",
            protocol,
            "--time",
            "0.3",
            "--warm-up",
            "0",
            "--json",
            &run,
        ];
        let output = bench(&[&common[..], &load].concat());
        assert!(output.status.success(), "{protocol}: {}", stderr(&output));
        assert!(stdout(&output).contains("100.0 %"), "{}", stdout(&output));
    }
    let common = ["sweep", "connections", "1,2,4", "-s", &address, "--time", "0.1", "--json"];
    let output = bench(&[&common[..], &[sweep.as_str()]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let files = [run.as_str(), &sweep, "--out", &page];
    let output = bench(&[&["report"][..], &files].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.matches("<svg").count() >= 5 && html.contains("</html>"));
    let names = html.matches("http").count() - html.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(names, 0, "the page names no other host");
    // A result that was cut short is refused by name.
    let whole = fs::read(&run).unwrap();
    fs::write(&run, &whole[..whole.len() / 2]).unwrap();
    let output = bench(&["report", &run]);
    assert!(!output.status.success() && stderr(&output).contains("cut short"));
}

#[test]
fn wrong_usage_says_what_is_wanted() {
    for (arguments, words) in [
        (&["run", "--ratio", "0:0"][..], "SETS:GETS"),
        (&["run", "--key-pattern", "zipf:x"], "number"),
        (&["search", "--sla", "p99"], "p99<1ms"),
        (&["sweep", "threads", "1,2"], "--start"),
        (&["run", "-s", "nowhere.invalid"], "nowhere.invalid"),
    ] {
        let output = bench(arguments);
        assert!(!output.status.success());
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_full_disk_is_told_after_the_figures() {
    let server = Running::serve(&[]);
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let output =
        bench(&["run", "-s", &address, "--time", "0.1", "--warm-up", "0", "--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("requests"), "the figures are not lost");
    assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
}
