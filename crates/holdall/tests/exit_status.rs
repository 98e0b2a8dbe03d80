//! docs/exit-status.md: each command with a wrong command line, an unreachable server, a file that
//! is not there or wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use common::{Scratch, holdall, memcached, output, stderr, stdout};

fn run(arguments: &[&str]) -> Output {
    output(&mut holdall(arguments))
}

#[track_caller]
fn ends(arguments: &[&str], status: i32) {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
}

/// Every command of `holdall --help`.
fn commands() -> Vec<String> {
    let help = stdout(&run(&["--help"]));
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn an_unknown_flag_exits_with_64_and_is_named() {
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    for command in &commands {
        let output = run(&[command, "--no-such-flag"]);
        assert_eq!(output.status.code(), Some(64), "{command}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{command}");
        let names = matches!(command.as_str(), "completions" | "man");
        assert!(names || stderr(&output).contains("--no-such-flag"), "{}", stderr(&output));
    }
}

#[test]
fn out_of_range_values_exit_with_64() {
    for arguments in [
        &["bench", "sweep", "connections", "0,1"][..],
        &["bench", "sweep", "threads", "1,2"],
        &["bench", "search", "--precision", "0"],
        &["bench", "score", "--random-weight", "2"],
        &["bench", "score", "--random", "0", "--hot", "0", "--power", "60"],
        &["bench", "alert", "--sla", "max<1ms"],
        &["bench", "study", "pavlik", "--servers", "nosuch"],
        &["bench", "hitrate", "--servers", "holdall", "--requests", "99", "--warm-up", "99"],
        &["doctor", "--nic", "nosuch0"],
        &["console", "--listen", "0.0.0.0:0"],
    ] {
        ends(arguments, 64);
    }
}

/// The server takes such files, and its log warns of what they do not do.
#[test]
fn settings_without_effect_exit_with_1() {
    let scratch = Scratch::new();
    let file = scratch.text("memcached.conf");
    for (text, lines) in [
        ("-m 64\nlogfile /var/log/memcached.log\n-o hashpower=16\n", &[2, 3][..]),
        ("PORT=\"11211\"\nUSER=\"memcached\"\n", &[1, 2]),
    ] {
        fs::write(&file, text).unwrap();
        ends(&["config", "check", &file], 1);
        let found = stdout(&run(&["config", "check", "--json", &file]));
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        let found = found.as_array().unwrap();
        assert!(found.iter().all(|one| one["severity"] == "warning"), "{found:?}");
        let at: Vec<_> = found.iter().filter_map(|one| one["line"].as_u64()).collect();
        assert_eq!(at, lines);
    }
    fs::write(&file, "-m 64\n").unwrap();
    ends(&["config", "check", &file], 0);
}

/// As the server's log at the start; without one, the start fails as well.
#[test]
fn settings_are_checked_as_at_the_start() {
    let scratch = Scratch::new();
    let missing = scratch.text("missing");
    let readable = scratch.text("readable");
    fs::write(&readable, "one:first\n").unwrap();
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).unwrap();
    let tls = |chain: &str| {
        format!("enable_ssl = true\nssl_key = \"{missing}\"\nssl_chain_cert = \"{chain}\"\n")
    };
    let conf = format!("-m 64\n-Y {missing}\n");
    for (name, text, status, line, message) in [
        ("a.toml", "port = -1\nmemory_limit = \"1m\"\n", 1, 2, "-m: items over 512 kB are"),
        ("a.conf", "-p -1\n-m 1\n", 1, 2, "-m: items over 512 kB are"),
        ("a.toml", "threads = 1\nlisten = [\"0.0.0.0\"]\n", 1, 2, "without authentication"),
        ("a.toml", "port = -1\nssl_verify_mode = 2\n", 1, 2, "has no effect without -Z"),
        ("a.toml", &format!("port = -1\nauth_file = \"{readable}\"\n"), 1, 2, "everybody"),
        ("a.toml", &format!("port = -1\nauth_file = \"{missing}\"\n"), 2, 2, "No such file"),
        ("a.toml", &format!("port = -1\nnamespaces = \"{missing}\"\n"), 2, 2, "No such file"),
        ("a.toml", &tls(&missing), 2, 3, "No such file"),
        ("a.conf", &conf, 2, 2, "No such file"),
        ("a.toml", "threads = 1\notlp = \"http://\"\n", 2, 2, "--otlp: "),
    ] {
        let file = scratch.text(name);
        fs::write(&file, text).unwrap();
        ends(&["config", "check", &file], status);
        let found = stdout(&run(&["config", "check", "--json", &file]));
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{text}: {found}");
        assert_eq!(found[0]["line"], line, "{text}: {found}");
        assert!(found[0]["message"].as_str().unwrap().contains(message), "{text}: {found}");
        let severity = if status == 1 { "warning" } else { "error" };
        assert_eq!(found[0]["severity"], severity, "{text}: {found}");
        if status == 2 {
            ends(&["serve", "--config", &file], 64);
        }
    }
}

/// A run that fails has not cost the result of the one before, and a report not its input.
#[test]
fn a_failed_run_keeps_the_existing_file() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let scratch = Scratch::new();
    let kept = scratch.text("kept.json");
    fs::write(&kept, "kept").unwrap();
    for flag in ["--json", "--memtier-json"] {
        ends(&["bench", "run", "-s", &address, flag, &kept], 1);
    }
    ends(&["bench", "sweep", "connections", "1,2", "-s", &address, "--json", &kept], 1);
    ends(&["bench", "stages", "-s", &address, "--json", &kept], 1);
    ends(&["bench", "report", &kept, "--out", &kept], 64);
    ends(&["bench", "compare", &kept, &kept, "--json", &kept], 1);
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
    let load = scratch.text("load.toml");
    let example = stdout(&run(&["plan", "size", "--example"]));
    fs::write(&load, &example).unwrap();
    for flag in ["--html", "--topology"] {
        ends(&["plan", "size", &load, flag, &load], 64);
    }
    assert_eq!(fs::read_to_string(&load).unwrap(), example);
}

#[test]
fn a_full_disk_exits_with_1() {
    let mut command = holdall(&["bench", "alert"]);
    command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
}

#[test]
fn help_and_version_exit_with_0_on_stdout() {
    for command in commands() {
        let output = run(&[&command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command} --help: {}", stderr(&output));
        assert!(!stdout(&output).is_empty() && stderr(&output).is_empty(), "{command} --help");
        let output = run(&[&command, "--version"]);
        assert_eq!(output.status.code(), Some(0), "{command} --version: {}", stderr(&output));
        let version = env!("CARGO_PKG_VERSION");
        assert!(stdout(&output).contains(version) && stderr(&output).is_empty(), "{command}");
    }
}

#[test]
fn a_misspelt_command_or_flag_gets_a_suggestion() {
    for (arguments, meant) in [
        (&["verson"][..], "version"),
        (&["cofig"], "config"),
        (&["check", "--jsn", "x"], "--json"),
        (&["explain", "--confg", "x", "key"], "--config"),
        (&["serve", "--memry-limit=1"], "--memory-limit"),
        (&["route", "--prt", "1"], "--port"),
        (&["invalidate", "chek"], "check"),
        (&["ping", "--jso"], "--json"),
        (&["config", "chekc"], "check"),
        (&["version", "--jsn"], "--json"),
        (&["passwd", "--verson"], "--version"),
        (&["completions", "bahs"], "mean bash"),
        (&["bench", "memtier", "--clientss", "5"], "--clients"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(meant), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn an_address_that_no_server_has_exits_with_64() {
    for arguments in [
        &["ping", "host:99999"][..],
        &["keys", "redis://127.0.0.1"],
        &["restore", "redis://127.0.0.1"],
        &["cp", "127.0.0.1", "redis://127.0.0.1"],
        &["dump", "redis://127.0.0.1:x"],
    ] {
        ends(arguments, 64);
    }
}

#[test]
fn an_unreachable_server_exits_with_1() {
    // Bound and given back: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let scratch = Scratch::new();
    fs::write(scratch.path("server.toml"), "").unwrap();
    let file = scratch.text("server.toml");
    for arguments in [
        &["ping", &address][..],
        &["latency", &address],
        &["keys", &address],
        &["bigkeys", &address],
        &["dump", &address],
        &["restore", &address, &file],
        &["cp", &address, &address],
        &["watch", &address],
        &["bench", "run", "-s", &address],
        &["config", "diff", &file, &address],
    ] {
        ends(arguments, 1);
    }
}

#[test]
fn unusable_files_exit_with_2() {
    let scratch = Scratch::new();
    for name in ["wrong.json", "wrong.toml"] {
        fs::write(scratch.path(name), "{ nonsense").unwrap();
    }
    let (json, toml) = (&scratch.text("wrong.json"), &scratch.text("wrong.toml"));
    for arguments in [
        &["check", json][..],
        &["check", "--json", json],
        &["explain", "--config", json, "key"],
        &["config", "check", toml],
        &["config", "show", "--config", toml],
        &["plan", toml, "--emit", "systemd", "--out", &scratch.text("out")],
        &["plan", "advise", "--topology", toml],
        &["top", "--once", "--topology", toml],
        &["console", "--topology", toml],
    ] {
        ends(arguments, 2);
    }
    let missing = &scratch.text("missing");
    for arguments in [
        &["check", missing][..],
        &["explain", "--config", missing, "key"],
        &["config", "check", missing],
        &["config", "show", "--config", missing],
        &["config", "diff", missing],
        &["plan", missing, "--emit", "systemd"],
        &["top", "--once", "--topology", missing],
    ] {
        ends(arguments, 2);
    }
    for from in ["mcrouter", "twemproxy", "memcached-proxy", "envoy"] {
        ends(&["migrate", from, missing], 2);
    }
    let found = stdout(&run(&["check", "--json", json]));
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found[0]["line"], &found[0]["severity"]), (&1.into(), &"error".into()));
}

#[test]
fn servers_exit_with_their_specific_statuses() {
    let scratch = Scratch::new();
    let missing = &scratch.text("missing");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = &taken.local_addr().unwrap().port().to_string();
    ends(&["serve", "--config", missing], 64);
    ends(&["serve", "-p", "-1", "-Y", missing], 64);
    ends(&["serve", "-p", "-1", "-o", &format!("namespaces={missing}")], 64);
    ends(&["serve", "-p", port], 71);
    ends(&["serve", "-c", "x"], 64);
    ends(&["route", "-f", missing, "-p", "0"], 3);
    ends(&["route", "--config", r#"{"route": "NullRoute"}"#, "-p", port], 2);
    for command in ["run", "check", "status", "flush", "setup"] {
        ends(&["invalidate", command, "--config", missing], 2);
    }
    ends(&["spool", missing], 1);
    let unknown = output(&mut memcached(&["--no-such-flag"]));
    assert_eq!(unknown.status.code(), Some(1), "{}", stderr(&unknown));
}

/// Each line of the log is an object, and the last says why, where, and what to do.
#[test]
fn a_failed_start_is_reported_in_json() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let key = scratch.text("key.pem");
    let tls = format!("ssl_chain_cert={key},ssl_key={key}");
    let toml = scratch.text("server.toml");
    fs::write(&toml, "log_format = \"json\"\nmemry_limit = 64\n").unwrap();
    let place_of_port = &format!("tcp 127.0.0.1:{port}");
    let json = "--log-format=json";
    let is_placed = |arguments: &[&str], status: i32, place: Option<&str>, has_hint: bool| {
        let output = run(arguments);
        let log = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {log}");
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let last = lines.last().unwrap();
        assert_eq!(last["level"], "error", "{log}");
        assert!(last["time"].is_string() && last["message"].is_string(), "{log}");
        assert_eq!(last["place"].as_str(), place, "{log}");
        assert_eq!(last["hint"].is_string(), has_hint, "{log}");
    };
    is_placed(&["serve", json, "-p", &port], 71, Some(place_of_port), true);
    is_placed(&["serve", json, "-c", "x"], 64, Some("-c (--conn-limit)"), false);
    is_placed(&["serve", json, "--memry-limit=1"], 64, None, true);
    is_placed(&["serve", json, "-p", "-1", "-Z", "-o", &tls], 64, Some(&key), true);
    is_placed(&["serve", "--config", &toml], 64, Some(&format!("{toml}:2:1")), true);
    is_placed(&["route", json, "-f", &toml, "-p", &port], 3, Some(&format!("{toml}:1:1")), false);
    is_placed(&["route", json, "--prt", "1"], 64, None, true);
}

/// As it is of the other servers, by the form that the file asks for.
#[test]
fn a_failed_invalidator_start_is_located_in_json() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let status = taken.local_addr().unwrap().to_string();
    let toml = scratch.text("invalidate.toml");
    let checkpoint = scratch.text("checkpoint");
    let good = format!(
        "log_format = \"json\"\ncheckpoint = \"{checkpoint}\"\n\
         [source]\nkind = \"mariadb\"\nservers = [\"127.0.0.1:1\"]\nuser = \"u\"\n\
         server_id = 1\n[keys.tables]\n\"a.b\" = \"{{id}}\"\n\
         [[cluster]]\nname = \"east\"\nrouters = [\"127.0.0.1:1\"]\n"
    );
    let place = |text: &str, more: &[&str]| {
        fs::write(&toml, text).unwrap();
        let output = run(&[&["invalidate", "run", "--config", &toml], more].concat());
        let log = stderr(&output);
        let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["level"], &last["program"]),
            (&"error".into(), &"holdall invalidate".into())
        );
        let place = last["place"].as_str().unwrap_or_else(|| panic!("no place: {log}"));
        (output.status.code().unwrap(), place.to_owned())
    };
    let at = |line_and_column: &str| (2, format!("{toml}:{line_and_column}"));
    assert_eq!(place(&good.replace("server_id", "sever_id"), &[]), at("7:1"));
    assert_eq!(place(&good.replace("server_id = 1", "server_id = 0"), &[]), at("7:1"));
    assert_eq!(place(&good.replace("kind = \"mariadb\"", "kind = mariadb"), &[]), at("4:8"));
    assert_eq!(place(&format!("{good}[delivery]\nbatch_keys = 0\n"), &[]), at("14:1"));
    assert_eq!(place(&good.replace("\"a.b\"", "\"b\""), &[]), at("8:7"));
    assert_eq!(place(&good.replace("name = \"east\"", "name = \"e t\""), &[]), (2, toml.clone()));
    assert_eq!(place(&good, &["--since", "yesterday"]), (64, "--since".to_owned()));
    assert_eq!(place(&good, &["--console", "127.0.0.1:0"]), (64, "--console".to_owned()));
    assert_eq!(place(&format!("status = \"{status}\"\n{good}"), &[]), (71, status));
    let missing = scratch.text("password");
    let with_file = good.replace("server_id", &format!("password_file = \"{missing}\"\nserver_id"));
    assert_eq!(place(&with_file, &[]), (2, missing));
}

/// Without a database, and without the secrets that the service manager hands to the unit alone.
#[test]
fn a_configuration_of_the_invalidator_is_checked_offline() {
    let scratch = Scratch::new();
    let toml = scratch.text("invalidate.toml");
    let good = "checkpoint = \"checkpoint\"\n[source]\nkind = \"postgresql\"\n\
        servers = [\"127.0.0.1:1\"]\nuser = \"u\"\npassword_file = \"/no/such/file\"\n\
        database = \"d\"\nslot = \"s\"\npublication = \"p\"\n[keys.tables]\n\"a.b\" = \"{id}\"\n\
        [[cluster]]\nname = \"east\"\nrouters = [\"127.0.0.1:1\"]\n";
    let check = |text: &str| {
        fs::write(&toml, text).unwrap();
        run(&["invalidate", "check", "--config", &toml, "--offline"])
    };
    let checked = check(good);
    assert_eq!((checked.status.code(), &*stdout(&checked)), (Some(0), "ok\n"), "{checked:?}");
    let refused = check(&good.replace("user", "usr"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains(&format!("{toml}:5:1")), "{}", stderr(&refused));
}

/// Less address space than `-m` reserves.
#[test]
fn insufficient_memory_for_the_cache_exits_with_71() {
    let program = env!("CARGO_BIN_EXE_holdall");
    let script = "ulimit -v 8000000; exec \"$0\" serve -p -1 -m 900g --log-format json";
    let output = output(std::process::Command::new("sh").args(["-c", script, program]));
    let log = stderr(&output);
    assert_eq!(output.status.code(), Some(71), "{log}");
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["place"], "-m", "{log}");
    assert!(last["hint"].as_str().unwrap().contains("lower -m"), "{log}");
}
