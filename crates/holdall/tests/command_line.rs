//! Output and exit status of the program when it does not serve.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use common::{Scratch, holdall, is_root, memcached, output, stderr, stdout};

const OURS: &str = concat!("holdall ", env!("CARGO_PKG_VERSION"));

#[test]
fn help_and_version_go_to_stdout() {
    let cases: [(&[&str], &str); 12] = [
        (&["--version"], OURS),
        (&["-V"], OURS),
        (&["--help"], OURS),
        (&["serve", "-h"], OURS),
        (&["serve", "--version"], OURS),
        (&["serve", "-i"], OURS),
        (
            &["route", "--help"],
            "A proxy that takes memcached requests and sends each to the servers that a configuration names",
        ),
        (
            &["check", "--help"],
            "Checks a router configuration: mcrouter's language, or twemproxy's YAML.",
        ),
        (
            &["explain", "--help"],
            "Shows the way of a key through a router configuration, and its server. Asks nobody.",
        ),
        (
            &["spool", "--help"],
            "Shows the records of a spool, oldest first for each destination: a folder of holdall's, a folder of mcrouter's (--async-dir),",
        ),
        (&["bench", "--help"], "Measures memcached, Redis and Valkey servers"),
        (
            &["passwd", "--help"],
            "Makes a line for the file of users (serve -Y): the name, and a verifier that gives the password away to nobody.",
        ),
    ];
    for (arguments, first) in cases {
        let output = output(&mut holdall(arguments));
        assert!(output.status.success(), "{arguments:?}");
        assert_eq!(stdout(&output).lines().next(), Some(first), "{arguments:?}");
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

/// Test suites of clients read the version from the first line, and ask for TLS by `--enable-ssl
/// --version`.
#[test]
fn the_program_named_memcached_reports_its_version() {
    let cases: [&[&str]; 5] =
        [&["-h"], &["-V"], &["-i"], &["--version"], &["--enable-ssl", "--version"]];
    for flags in cases {
        let output = output(&mut memcached(flags));
        assert!(output.status.success(), "{flags:?}");
        assert_eq!(stdout(&output).lines().next(), Some("memcached 1.6.45"), "{flags:?}");
    }
}

#[test]
fn usage_errors_are_one_line_on_stderr_with_a_status() {
    let cases: [(&[&str], i32, &str); 11] = [
        (&[], 64, "holdall: a command is missing; see holdall --help\n"),
        (&["frobnicate"], 64, "holdall: there is no command 'frobnicate'; see holdall --help\n"),
        (&["serv"], 64, "holdall: there is no command 'serv'; did you mean serve?\n"),
        (
            &["serve", "--memry-limit=1"],
            64,
            "holdall: unknown flag --memry-limit; did you mean --memory-limit?\n",
        ),
        (
            &["serve", "-o", "idle_timout=3"],
            64,
            "holdall: unknown option -o idle_timout; did you mean idle_timeout?\n",
        ),
        (&["serve", "-Q"], 64, "holdall: unknown flag -Q\n"),
        (&["serve", "--frobnicate=1"], 64, "holdall: unknown flag --frobnicate\n"),
        (&["serve", "-o", "frobnicate"], 64, "holdall: unknown option -o frobnicate\n"),
        (&["serve", "-c", "x"], 64, "holdall: -c (--conn-limit): 'x' is not a number\n"),
        (
            &["serve", "-S"],
            64,
            "holdall: -S: name the file of users by MEMCACHED_SASL_PWDB or -Y\n",
        ),
        (&["serve", "-l", "::1:x]"], 71, ""),
    ];
    for (arguments, status, line) in cases {
        let output = output(&mut holdall(arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).ends_with(line), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn a_connection_limit_above_the_file_limit_is_refused() {
    let output = output(&mut holdall(&["serve", "-p", "-1", "-c", "10000000", "-m", "64"]));
    // Where the system's own limit is that high, the server would start; it is not so on any Linux
    // by default.
    assert_eq!(output.status.code(), Some(71), "{}", stderr(&output));
    assert!(stderr(&output).contains("-c 10000000: cannot have"), "{}", stderr(&output));
}

#[test]
fn a_user_that_does_not_exist_is_refused_with_memcacheds_status() {
    let output =
        output(&mut holdall(&["serve", "-p", "0", "-s", "/nonexistent/x", "-u", "no-such-user"]));
    // Only root can change users; everybody else goes on, to a socket that cannot be.
    let want = if is_root() { 67 } else { 71 };
    assert_eq!(output.status.code(), Some(want), "{}", stderr(&output));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = output(&mut holdall(&["serve", "-p", &port.to_string()]));
    assert_eq!(output.status.code(), Some(71));
    assert!(stderr(&output).contains(&format!("127.0.0.1:{port}")), "{}", stderr(&output));
}

#[test]
fn a_file_at_the_socket_path_is_not_replaced() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("x"), "precious").unwrap();
    let output = output(&mut holdall(&["serve", "-s", &scratch.text("x")]));
    assert_eq!(output.status.code(), Some(71), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(scratch.path("x")).unwrap(), "precious");
    let text = stderr(&output);
    assert!(text.contains("is not a socket; remove it, or name another path by -s"), "{text}");
}

#[test]
fn root_must_name_a_user_under_the_name_memcached() {
    if is_root() {
        let output = output(&mut memcached(&["-p", "-1", "-l", "127.0.0.1"]));
        assert_eq!(output.status.code(), Some(64));
        assert_eq!(stderr(&output), "memcached: can't run as root without the -u switch\n");
    } else {
        let running = common::Running::start(memcached(&["-p", "-1", "-l", "127.0.0.1"]));
        running.connect().expect(b"version\r\n", b"VERSION 1.6.45\r\n");
    }
}
