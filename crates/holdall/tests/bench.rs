//! `holdall bench` as a user runs it, against a server of our own.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs;
use std::thread;
use std::time::Duration;

use common::{Running, Scratch, holdall, kill, output, proc_line, stderr, stdout};
use rustix::process::Signal;
use testkit::eventually;

fn bench(arguments: &[&str]) -> std::process::Output {
    output(&mut holdall(&[&["bench"], arguments].concat()))
}

#[test]
fn a_run_and_a_sweep_are_reported() {
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
    // A truncated result is refused by name.
    let whole = fs::read(&run).unwrap();
    fs::write(&run, &whole[..whole.len() / 2]).unwrap();
    let output = bench(&["report", &run]);
    assert!(!output.status.success() && stderr(&output).contains("cut short"));
}

#[test]
fn usage_errors_show_the_expected_form() {
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
fn a_full_disk_is_reported_after_the_figures() {
    let server = Running::serve(&[]);
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let output =
        bench(&["run", "-s", &address, "--time", "0.1", "--warm-up", "0", "--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("requests"), "the figures are not lost");
    assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
}

#[test]
fn a_json_result_is_alone_on_stdout() {
    let server = Running::serve(&[]);
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let output = bench(&["run", "-s", &address, "--time", "0.1", "--warm-up", "0", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(json["total"]["requests"].as_u64().unwrap() > 0, "{json}");
    assert!(stderr(&output).contains("a second"), "the figures go to stderr");
}

#[test]
fn a_truncated_trace_is_replayed_to_its_end_and_marked() {
    let scratch = Scratch::new();
    let (trace, json, page) =
        (scratch.text("a.oracleGeneral"), scratch.text("h.json"), scratch.text("page.html"));
    let mut bytes = Vec::new();
    for at in 0..3000u64 {
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend_from_slice(&(at % 1000).to_le_bytes());
        bytes.extend_from_slice(&200u32.to_le_bytes());
        bytes.extend_from_slice(&[0xff; 8]);
    }
    let common =
        ["hitrate", &trace, "-m", "4,8", "--servers", "holdall,holdall-lru,memcached", "--json"];
    fs::write(&trace, &bytes).unwrap();
    let output = bench(&[&common[..], &[json.as_str()]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    fs::write(&trace, &bytes[..bytes.len() - 5]).unwrap();
    let output = bench(&[&common[..], &[json.as_str()]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("cut short: 19 bytes are left over") && said.contains("ended early"));
    assert!(said.contains("33.34 % of 2999 gets missed"), "what came before is kept: {said}");
    let output = bench(&["report", &json, "--out", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Belady") && html.contains("cut short") && html.contains("<svg"));
    // Errors of usage come before any server is started.
    for (arguments, words) in [
        (&["hitrate", "/nowhere/trace.csv"][..], "/nowhere/trace.csv"),
        (&["hitrate", "-m", "8,4"], "each above the last"),
        (&["hitrate", "--servers", "memcash"], "possible values: holdall,"),
    ] {
        let output = bench(arguments);
        assert!(stderr(&output).contains(words), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn reports_show_cpu_and_thread_times_with_latency() {
    let (server, scratch) = (Running::serve(&[]), Scratch::new());
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let (json, page) = (scratch.text("run.json"), scratch.text("page.html"));
    let time = ["--time", "2.3", "--warm-up", "0"];
    let output = bench(&[&["run", "-s", &address, "--json", &json][..], &time].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    // The server was found by its port, and its worker by its thread.
    assert!(said.contains("server: ") && said.contains("generator: "), "{said}");
    assert!(said.contains("switches a second") && said.contains("softirq"), "{said}");
    let output = bench(&["report", &json, "--out", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    let html = fs::read_to_string(&page).unwrap();
    for words in ["Processor time over time", "Threads over time", "<td>server: ", "steal %"] {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn two_results_are_compared_with_significance() {
    let (server, scratch) = (Running::serve(&[]), Scratch::new());
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let run = |name: &str, pipeline: &str| {
        let json = scratch.text(name);
        let load = ["run", "-s", &address, "--time", "0.15", "--warm-up", "0", "--json", &json];
        let output = bench(&[&load[..], &["--pipeline", pipeline]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        json
    };
    let side = |letter: &str, pipeline: &str| -> String {
        (0..5).map(|n| run(&format!("{letter}{n}.json"), pipeline)).collect::<Vec<_>>().join(",")
    };
    // Pipelining is far better, whatever else the machine does.
    let (single, piped) = (side("a", "1"), side("b", "32"));
    let page = scratch.text("compare.html");
    let output = bench(&["compare", &single, &piped, "--html", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    let line = said.lines().find(|line| line.contains("requests a second")).unwrap();
    assert!(line.ends_with("better"), "{said}");
    assert!(said.contains("5 and 5 runs were compared"), "{said}");
    assert!(fs::read_to_string(&page).unwrap().contains("Mann and Whitney"));
    let output = bench(&["compare", &piped, &single, "--json", "-", "--fail-if-worse"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let of = |what: &str| {
        json["lines"].as_array().unwrap().iter().find(|line| line["what"] == what).unwrap().clone()
    };
    assert!(of("requests a second")["verdict"]["ratio"].as_f64().unwrap() < 1.0, "{json:#}");
    assert_eq!(of("requests a second")["words"], "worse");
    assert_eq!(output.status.code(), Some(1));
    let output = bench(&["compare", &single, &single, "--fail-if-worse"]);
    assert!(output.status.success());
    assert!(!stdout(&output).contains("better") && !stdout(&output).contains("worse"));
    let output = bench(&["compare", "/nowhere/a.json", &single]);
    assert!(!output.status.success() && stderr(&output).contains("/nowhere/a.json"));
}

/// Ends a command by one SIGINT a second after it has begun to listen for it; its status, and what
/// it printed.
fn interrupted(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = holdall(&[&["bench"], arguments].concat());
    let mut child = command.spawn().unwrap();
    let caught = || u64::from_str_radix(&proc_line(child.id(), "status", "SigCgt:"), 16).unwrap();
    eventually("its handler", || caught() & (1 << (Signal::INT.as_raw() - 1)) != 0);
    thread::sleep(Duration::from_secs(1));
    kill(child.id(), Signal::INT);
    eventually("the end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stdout(&output) + &stderr(&output))
}

/// The time limits are far above the needed time: the interrupt must end it.
#[test]
fn an_interrupted_command_keeps_its_results() {
    let (server, scratch) = (Running::serve(&["-m", "256"]), Scratch::new());
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let json = scratch.text("result.json");
    let long = ["-s", &address, "--preload", "-k", "100", "--json", &json, "--time"];
    for (words, mark) in [
        (&["run"][..], "the run ended early: interrupted"),
        (&["search", "--from", "1000", "--to", "1000"], "the search ended early: interrupted"),
        (&["sweep", "connections", "1,2,4"], "the sweep ended early: interrupted"),
    ] {
        let (status, said) = interrupted(&[words, &long, &["300"]].concat());
        assert_eq!(status, Some(130), "{words:?}: {said}");
        assert!(said.contains(mark), "{words:?}: {said}");
        let result: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        let failure = match words[0] {
            "search" => &result["found"]["failure"],
            _ => &result["failure"],
        };
        assert_eq!(failure, "interrupted", "{words:?}");
        let doubts = result["doubts"].as_array().unwrap();
        assert!(doubts.contains(&mark.into()), "{words:?}: {doubts:?}");
    }
    let (status, said) = interrupted(&[&["score"], &long[..], &["300"]].concat());
    assert_eq!(status, Some(130), "{said}");
    let page = scratch.text("page.html");
    let sweep = ["sweep", "connections", "1", "-s", &address, "--time", "300", "--json", &json];
    assert_eq!(interrupted(&sweep).0, Some(130));
    let report = bench(&["report", &json, "--out", &page]);
    assert!(report.status.success(), "{}", stderr(&report));
    assert!(fs::read_to_string(&page).unwrap().contains("the sweep ended early: interrupted"));
}

#[test]
fn missed_gets_are_reported_as_a_doubt() {
    let server = Running::serve(&[]);
    let address = format!("127.0.0.1:{}", server.port("TCP INET"));
    let load = ["run", "-s", &address, "--time", "0.3", "--warm-up", "0", "--ratio", "0:1"];
    let missed = stdout(&bench(&load));
    assert!(missed.contains("only 0.0 % of the keys were found"), "{missed}");
    let search = ["search", "-s", &address, "--time", "0.2", "--ratio", "0:1", "--json", "-"];
    let at = ["--from", "100", "--to", "100", "--repeats", "1", "--sla", "p99<1000s"];
    for words in [&[&load[..], &["--json", "-"]].concat(), &[&search[..], &at].concat()] {
        let output = bench(words);
        let result: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert!(result["doubts"].to_string().contains("only 0.0 % of the keys"), "{result}");
        assert!(stderr(&output).contains("only 0.0 % of the keys"), "{}", stderr(&output));
    }
    let found = stdout(&bench(&[&load[..], &["--preload", "-k", "500"]].concat()));
    assert!(!found.contains("of the keys were found"), "{found}");
}
