//! `holdall plan advise` about a real server that is too small for its load and has a hot key.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::time::{Duration, Instant};

use common::{holdall, output, stderr, stdout};
use serde_json::Value;
use testkit::{Rng, Server, Wire};

/// One batch of gets, every fourth of one key, and the sets of what was missed.
fn batch(wire: &mut Wire, rng: &mut Rng, value: &str) {
    let key = |number: u32, rng: &mut Rng| {
        if number.is_multiple_of(4) {
            "user:hot".to_owned()
        } else {
            format!("user:{}", rng.below(30_000))
        }
    };
    let keys: Vec<String> = (0..60).map(|number| key(number, rng)).collect();
    let gets: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
    wire.send(gets.as_bytes());
    let mut sets = String::new();
    for key in &keys {
        if wire.line() == "END" {
            sets += &format!("set {key} 0 0 {} noreply\r\n{value}\r\n", value.len());
        } else {
            wire.line();
            wire.line();
        }
    }
    if !sets.is_empty() {
        wire.send(sets.as_bytes());
    }
}

#[test]
fn both_faults_of_a_small_server_are_named() {
    let server = Server::holdall(&["-m", "16", "-t", "1"]);
    let dead = "127.0.0.1:1";
    let address = server.addr().to_string();
    let (mut wire, value) = (server.connect(), "v".repeat(1000));
    let mut rng = Rng::new(7);
    let begin = Instant::now();
    loop {
        let ask = holdall(&["plan", "advise", &address, dead, "--interval", "1", "--json"]).spawn();
        let mut ask = ask.unwrap();
        while ask.try_wait().unwrap().is_none() {
            batch(&mut wire, &mut rng, &value);
        }
        let output = ask.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let advice: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let of =
            |rule: &str| advice.as_array().unwrap().iter().find(|one| one["rule"] == rule).cloned();
        assert_eq!(of("member-away").unwrap()["members"][0], dead);
        if let (Some(memory), Some(hot)) = (of("more-memory"), of("hot-key")) {
            assert_eq!((&memory["members"][0], &memory["rank"]), (&address.into(), &"now".into()));
            assert!(hot["evidence"].as_str().unwrap().starts_with("user%3Ahot: "), "{hot}");
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{advice:#}");
    }
}

#[test]
fn advise_fails_if_no_member_answers() {
    let output = output(&mut holdall(&["plan", "advise", "127.0.0.1:1", "--interval", "1"]));
    assert_eq!(output.status.code(), Some(1));
    let why = "holdall plan: no member answers: Connection refused";
    assert!(stderr(&output).starts_with(why), "{output:?}");
}
