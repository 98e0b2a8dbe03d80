//! Namespaces: limits applied to unchanged clients, a file reloaded while the server runs, counters
//! that survive a restart.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::{Kind, Launch, Server};

use crate::login::login;
use crate::{Folder, output, python};

/// The lines of `stats prefixes` for one namespace or user.
fn prefixes(server: &Server, subject: &str) -> BTreeMap<String, u64> {
    let lines = server.stats("prefixes").into_iter().filter_map(|(name, value)| {
        let field = name.strip_prefix(subject)?.strip_prefix(':')?;
        Some((field.to_owned(), value.parse().unwrap()))
    });
    lines.collect()
}

#[test]
fn namespace_limits_with_popular_clients() {
    let folder = Folder::new();
    let text = "prefix quota: max-bytes=1000\nprefix short: default-ttl=30 max-ttl=60\n\
                prefix rate: max-requests-per-second=2\n";
    let option = format!("namespaces={}", folder.write("namespaces", text));
    let server = Server::holdall(&["-o", &option, "-t", "2"]);
    python("check_namespaces.py", &[&server.addr().to_string()]);
    let quota = prefixes(&server, "prefix:quota:");
    assert_eq!((quota["items"], quota["refused_bytes"], quota["max_bytes"]), (1, 3, 1000));
    let rate = prefixes(&server, "prefix:rate:");
    assert!(rate["refused_rate"] > 0 && rate["requests"] > rate["refused_rate"], "{rate:?}");
    assert_eq!(rate["gets"] + rate["deletes"], rate["requests"] - rate["refused_rate"]);
    assert_eq!(server.stat("store_over_quota"), 3);
    assert_eq!(server.stat("rate_refused"), rate["refused_rate"]);
}

/// A bad file changes nothing and is named, with the line; a good one changes limits and prefixes
/// and keeps the counters.
#[test]
fn namespaces_are_reloaded_without_a_restart() {
    let folder = Folder::new();
    let users = folder.write("users", "me:secret\n");
    let path = folder.write("namespaces", "prefix a: max-bytes=100\nuser me\n");
    let option = format!("namespaces={path}");
    let server = Server::holdall(&["-Y", &users, "-o", &option]);
    let connect = || {
        let mut wire = server.connect();
        wire.expect(&login("me secret"), b"STORED\r\n");
        wire
    };
    let mut wire = connect();
    let refused: &[u8] = b"SERVER_ERROR max-bytes of the namespace reached\r\n";
    wire.expect(b"set a:b:1 0 0 40\r\n0123456789012345678901234567890123456789\r\n", b"STORED\r\n");
    wire.expect(b"set a:2 0 0 40\r\n0123456789012345678901234567890123456789\r\n", refused);
    let stat = |wire: &mut testkit::Wire, name: &str| -> u64 {
        wire.send(b"stats prefixes\r\n");
        let text = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    };
    assert_eq!(stat(&mut wire, "prefix:a::bytes"), 16 + 5 + 40);

    folder.write("namespaces", "prefix a: max-bytes=200\nprefix a: max-byte=1\n");
    wire.send(b"refresh_certs\r\n");
    let answer = wire.line();
    assert!(answer.starts_with("ERROR /") && answer.contains("namespaces: line 2: 'max-byte=1'"));
    wire.expect(b"set a:2 0 0 40\r\n0123456789012345678901234567890123456789\r\n", refused);

    folder.write("namespaces", "prefix a: max-bytes=200\nprefix a:b:\nuser me\n");
    output(Command::new("kill").args(["-HUP", &server.pid().to_string()]));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.log().contains("namespaces: read again") {
        assert!(Instant::now() < deadline, "{}", server.log());
    }
    // On a connection from before the reload.
    wire.expect(b"set a:2 0 0 40\r\n0123456789012345678901234567890123456789\r\n", b"STORED\r\n");
    assert_eq!(stat(&mut wire, "prefix:a:b::bytes"), 16 + 5 + 40);
    assert_eq!(stat(&mut wire, "prefix:a::bytes"), 16 + 3 + 40);
    assert_eq!(stat(&mut wire, "prefix:a::refused_bytes"), 2);
    assert_eq!(stat(&mut wire, "prefix:a::sets"), 4);
    assert_eq!(stat(&mut wire, "user:me:requests"), 4);
    wire.expect(b"flush_prefix a:b:\r\nget a:b:1\r\n", b"OK\r\nEND\r\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while stat(&mut wire, "prefix:a:b::items") > 0 {
        assert!(Instant::now() < deadline, "what was flushed is not freed");
    }
}

#[test]
fn items_restored_by_a_restart_are_counted() {
    let folder = Folder::new();
    let path = folder.write("namespaces", "prefix a: max-bytes=2000\nprefix *\n");
    let (memory, option) =
        (format!("/dev/shm/e2e-namespaces-{}", std::process::id()), format!("namespaces={path}"));
    let start =
        || Launch::new(Kind::Holdall).args(&["-e", &memory, "-m", "64", "-o", &option]).start();
    let value = "v".repeat(1000);
    let set = |key: &str| format!("set {key} 0 0 1000\r\n{value}\r\n").into_bytes();
    let mut server = start();
    server
        .connect()
        .expect(&[set("a:1"), set("b:1"), set("b:2")].concat(), &b"STORED\r\n".repeat(3));
    for is_clean in [true, false] {
        if is_clean {
            server.end();
        } else {
            server.kill();
        }
        server = start();
        let of = |subject| {
            let fields = prefixes(&server, subject);
            (fields["items"], fields["bytes"])
        };
        assert_eq!((of("prefix:a:"), of("prefix:*")), ((1, 1019), (2, 2038)), "clean: {is_clean}");
        let refused = b"SERVER_ERROR max-bytes of the namespace reached\r\n";
        server.connect().expect(&set("a:2"), refused);
    }
    server.kill();
    std::fs::remove_file(&memory).unwrap();
}

#[test]
fn an_unusable_namespaces_file_prevents_the_start() {
    let folder = Folder::new();
    for (text, want) in [
        ("prefix a: max-ttl=1h\n", "namespaces: line 1: 'max-ttl=1h': write a number of seconds"),
        ("user me\n", "namespaces: line 1: `user` lines need logins: set -Y or -S"),
    ] {
        let option = format!("namespaces={}", folder.write("namespaces", text));
        let output = Command::new(testkit::server::holdall_path())
            .args(["serve", "-l", "127.0.0.1:0", "-o", &option])
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(64) && log.contains(want), "{} {log}", output.status);
    }
}
