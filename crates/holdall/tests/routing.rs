//! `holdall check` and `holdall explain`, as a user runs them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;
use std::process::Command;

/// Standard output with standard error behind it, and the exit status.
fn run(arguments: &[&str]) -> (String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"))
        .args(arguments)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.code().unwrap())
}

#[test]
fn a_good_configuration_has_no_finding() {
    assert_eq!(run(&["check", "router.json", "router_grown.json"]), (String::new(), 0));
}

#[test]
fn findings_have_a_place_and_a_status() {
    let warnings = "router_odd.json:4:10: warning: the pool 'a' has the server h:1 twice, first in line 4\n\
        router_odd.json:5:10: warning: no request reaches the pool 'b'\n\
        router_odd.json:7:21: warning: 'warm' and 'cold' of WarmUpRoute are the same servers\n";
    let (text, status) = run(&["check", "router_odd.json"]);
    let lines = |text: &str| {
        text.lines()
            .map(|line| line.split_once("warning").unwrap().1.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!((lines(&text), status), (lines(warnings), 1), "{text}");
    let (text, status) = run(&["check", "missing.json"]);
    assert!(text.starts_with("missing.json: error: cannot be read: "), "{text}");
    assert_eq!(status, 2);
    assert_eq!(run(&["check"]).1, 64);
    assert_eq!(run(&["explain", "k", "--config", "router.json", "--op", "fetch"]).1, 64);
}

#[test]
fn the_way_of_a_key_is_shown() {
    let (get, status) = run(&["explain", "user:17", "--config", "router.json"]);
    assert_eq!(status, 0);
    assert!(
        get.contains("PoolRoute: pool 'east', server 1 of 4 by Ch3 -> 10.0.0.1:11211"),
        "{get}"
    );
    assert!(get.contains("if that fails: PoolRoute: pool 'gutter'"), "{get}");
    assert!(get.ends_with("get user:17 is answered by 10.0.0.1:11211\n"), "{get}");
    let (delete, _) = run(&["explain", "user:17", "--config", "router.json", "--op", "delete"]);
    assert!(delete.contains("also: PoolRoute: pool 'west'"), "{delete}");
    let (all, _) = run(&["explain", "/*/*/user:17|#|x", "--config", "router.json"]);
    assert!(all.contains("behind its back: PoolRoute: pool 'west'"), "{all}");
}

#[test]
fn the_way_of_a_key_is_json_too() {
    let explain = ["explain", "user:17", "--config", "router.json"];
    let (text, status) = run(&[&explain[..], &["--json", "--diff", "router_grown.json"]].concat());
    assert_eq!(status, 0);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let listener = &json["listeners"][0];
    assert_eq!((&json["command"], &listener["server"]), (&"get".into(), &"10.0.0.1:11211".into()));
    assert_eq!(listener["difference"]["keys"], 100_000);
    let moved = listener["difference"]["moved"].as_u64().unwrap();
    assert!((19_000..21_000).contains(&moved), "{text}");
    let mut step = &listener["steps"][0];
    while step["server"].is_null() {
        step = &step["next"][0];
    }
    let place = step["place"].as_str().unwrap();
    assert!(place.starts_with("router.json:") && step["route"] == "PoolRoute", "{text}");
}

#[test]
fn a_fifth_server_takes_a_fifth_of_the_keys() {
    let (text, _) =
        run(&["explain", "user:", "--config", "router.json", "--diff", "router_grown.json"]);
    let line = text.lines().find(|line| line.contains("% of keys move")).unwrap();
    let share: f64 = line.split(' ').next().unwrap().parse().unwrap();
    assert!((19.0..21.0).contains(&share), "{text}");
    assert!(text.contains("10.0.0.1:11211 -> 10.0.0.5:11211"), "{text}");
}
