//! `holdall check` and `holdall explain`, as a user runs them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::Scratch;
use serde_json::json;

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
fn findings_have_a_position_and_an_exit_status() {
    let warnings = "router_odd.json:4:10: warning: the pool 'a' has the server h:1 twice, first in line 4\n\
        router_odd.json:5:10: warning: no request reaches the pool 'b'\n\
        router_odd.json:7:21: warning: deleted items come back from 'warm' of WarmUpRoute: set 'leases' or 'hold_off'\n\
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

/// The fleet's proxies tell each other at other servers of missed deletes.
#[test]
fn a_server_without_another_for_its_mark_is_noted() {
    let check = |pools: &str, route: &str| {
        let scratch = Scratch::new();
        let text = format!(r#"{{"pools": {{{pools}}}, "route": {route}}}"#);
        fs::write(scratch.path("a.json"), text).unwrap();
        run(&["check", &scratch.text("a.json")])
    };
    let one = r#""A": {"servers": ["h:1"]}"#;
    let (text, status) = check(one, r#""PoolRoute|A""#);
    let note =
        "a.json:1:30: note: while one proxy keeps deletes for h:1, others return its old values";
    assert!(text.contains(note) && text.lines().count() == 1, "{text}");
    assert_eq!(status, 0, "one proxy needs no mark");
    let same = format!(r#"{one}, "B": {{"servers": ["h:1"]}}"#);
    assert!(check(&same, r#""AllSyncRoute|PoolRoute|A""#).0.contains("note: while"));
    let without = r#"{"type": "PoolRoute", "pool": "A", "asynclog": false}"#;
    assert_eq!(check(one, without), (String::new(), 0));
    let two = r#""A": {"servers": ["h:1", "h:2"]}"#;
    assert_eq!(check(two, r#""PoolRoute|A""#), (String::new(), 0));
    // What mends it is no mistake.
    let mended = format!(r#"{one}, "marks": {{"servers": ["h:2"]}}"#);
    let (text, status) = check(&mended, r#""PoolRoute|A""#);
    assert!(text.contains("note: no request reaches the pool 'marks': its servers keep"), "{text}");
    assert_eq!((text.lines().count(), status), (1, 0), "{text}");
    let useless = format!(r#"{two}, "marks": {{"servers": ["h:3"]}}"#);
    let (text, status) = check(&useless, r#""PoolRoute|A""#);
    assert!(text.contains("warning: no request reaches the pool 'marks'"), "{text}");
    assert_eq!(status, 1);
}

#[test]
fn explain_shows_the_route_of_a_key() {
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
fn explain_prints_the_route_as_json() {
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

/// Where servers are not listed but asked for by a running proxy, which these commands are not.
#[test]
fn discovery_sources_are_accepted_but_not_queried() {
    let sources = [
        "dns:cache:11211",
        "srv:_memcached._tcp.example.com",
        "etcd:a:1,b:2/cache/",
        "etcd+tls:a:1/cache",
        "elasticache:x.cfg:11211",
        "elasticache+tls:x.cfg:11211",
    ];
    for source in sources {
        let scratch = Scratch::new();
        let config =
            |pool: &str| format!(r#"{{"pools": {{"A": "{pool}"}}, "route": "PoolRoute|A"}}"#);
        fs::write(scratch.path("a.json"), config(source)).unwrap();
        fs::write(scratch.path("b.json"), config("srv:another")).unwrap();
        let (a, b) = (&scratch.text("a.json"), &scratch.text("b.json"));
        let note = format!("holdall check: {a}: {source} is not asked: its servers count as one\n");
        assert_eq!(run(&["check", a]), (note, 0));
        let (text, status) = run(&["explain", "key", "--config", a]);
        assert_eq!(status, 0, "{text}");
        assert!(text.contains(&format!("get key is answered by {source}\n")), "{text}");
        let (text, _) = run(&["explain", "key", "--config", a, "--diff", b]);
        assert!(text.contains(&format!("100.00 %  {source} -> srv:another")), "{text}");
    }
    for wrong in ["dns:cache", "dns::1", "etcd:a:1", "elasticache:x.cfg:port", "srv:"] {
        let scratch = Scratch::new();
        let config = format!(r#"{{"pools": {{"A": "{wrong}"}}, "route": "PoolRoute|A"}}"#);
        fs::write(scratch.path("a.json"), config).unwrap();
        let (text, status) = run(&["check", &scratch.text("a.json")]);
        assert!(status == 2 && text.contains("is expected"), "{wrong}: {text}");
    }
}

#[test]
fn plan_output_passes_check_and_explain_unchanged() {
    let scratch = Scratch::new();
    let topology = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/topology.toml");
    let (out, topology) = (scratch.text("out"), topology.display().to_string());
    let (text, status) = run(&["plan", &topology, "--emit", "systemd", "--out", &out, "--json"]);
    assert_eq!(status, 0, "{text}");
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(written["folder"].as_str(), Some(out.as_str()));
    let names = written["files"].as_array().unwrap();
    assert!(names.len() > 5, "{written}");
    assert!(names.iter().all(|name| Path::new(&out).join(name.as_str().unwrap()).is_file()));
    assert_eq!(run(&["plan", &topology, "--emit", "systemd", "--json"]).1, 64);
    let hosts = fs::read_dir(&out).unwrap().map(|host| host.unwrap().path());
    let files = hosts.map(|host| host.join("etc/holdall/routes.json"));
    let files: Vec<_> = files.filter(|file| file.exists()).collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files.iter().map(|file| file.to_str().unwrap()) {
        let (text, status) = run(&["check", file]);
        assert_eq!(status, 0, "{text}");
        assert!(text.contains("read as by --route-prefix /"), "{text}");
        let prefix = text.trim_end().rsplit(' ').next().unwrap();
        assert_eq!(run(&["check", file, "--route-prefix", prefix]), (String::new(), 0));
        let (text, status) = run(&["explain", "key", "--config", file]);
        assert!(status == 0 && text.contains("get key is answered by 1"), "{text}");
        // A prefix that was asked for is not another.
        assert_eq!(run(&["check", file, "--route-prefix", "/no/where/"]).1, 2);
    }
}

#[test]
fn migrate_reports_its_results_as_json() {
    let scratch = Scratch::new();
    let envoy = scratch.text("envoy.yaml");
    let kind = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
    let filter = json!({"name": "f", "typed_config": {"@type": kind, "cluster": "c"}});
    let address = json!({"socket_address": {"address": "10.0.0.1", "port_value": 11211}});
    let endpoints = json!([{"lb_endpoints": [{"endpoint": {"address": address}}]}]);
    let config = json!({"static_resources": {
        "listeners": [{"name": "cache", "filter_chains": [{"filters": [filter]}]}],
        "clusters": [{"name": "c", "load_assignment": {"endpoints": endpoints}}],
    }});
    fs::write(&envoy, config.to_string()).unwrap();
    let made = |arguments: &[&str]| -> serde_json::Value {
        let (text, status) = run(&[&["migrate", "--json"], arguments].concat());
        assert_eq!(status, 0, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let printed = made(&["envoy", &envoy]);
    assert!(printed["text"].as_str().unwrap().contains("10.0.0.1:11211"), "{printed}");
    assert!(printed["out"].is_null() && printed["command"].is_null(), "{printed}");
    let out = scratch.text("routes.json");
    let written = made(&["envoy", &envoy, "--out", &out]);
    assert_eq!(fs::read_to_string(&out).unwrap(), printed["text"].as_str().unwrap());
    assert!(written["text"].is_null(), "{written}");
    assert_eq!(written["out"].as_str(), Some(out.as_str()));
    assert_eq!(written["command"].as_str(), Some(&*format!("holdall route -f {out}")));
    assert_eq!(written["notes"], printed["notes"]);
    // The file that it reads is not the one that it writes.
    let (_, status) = run(&["migrate", "envoy", &envoy, "--out", &envoy]);
    assert_eq!((status, fs::read_to_string(&envoy).unwrap()), (1, config.to_string()));
    let kept = made(&["mcrouter", "router_odd.json"]);
    assert_eq!(kept["command"], "holdall route -f router_odd.json");
    assert!(kept["notes"].is_array(), "{kept}");
}
