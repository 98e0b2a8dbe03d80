//! The settings of a Redis as a file for holdall.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use config::check;
use migrate::{COUNTERPARTS, Redis, from_redis};
use tools::Options;

fn redis(config: &[(&str, &str)], calls: &[(&str, u64)], kinds: &[(&str, u64)]) -> Redis {
    let owned = |name: &str| name.to_owned();
    Redis {
        config: config.iter().map(|(name, value)| (owned(name), owned(value))).collect(),
        version: 7,
        calls: calls.iter().map(|(name, count)| (owned(name), *count)).collect(),
        databases: vec!["db0".to_owned(), "db3".to_owned()],
        kinds: kinds.iter().map(|(name, count)| (owned(name), *count)).collect(),
        long_keys: 2,
    }
}

#[test]
fn bind_addresses_are_converted() {
    for (bind, listen) in [
        ("* -::*", r#"["*"]"#),
        ("*", r#"["0.0.0.0"]"#),
        ("-::*", r#"["::"]"#),
        // A server does not start with an address that the host may lack.
        ("10.0.0.5 -::*", r#"["10.0.0.5"]"#),
        ("127.0.0.1 -::1", r#"["127.0.0.1"]"#),
    ] {
        let text = from_redis(&redis(&[("bind", bind)], &[], &[])).text;
        assert!(text.starts_with(&format!("listen = {listen}\n")), "{bind}: {text}");
    }
}

#[test]
fn protected_mode_without_a_password_listens_on_loopback() {
    let listen = |version, config: &[(&str, &str)]| {
        let made = from_redis(&Redis { version, ..redis(config, &[], &[]) });
        let is_noted = made.notes.iter().any(|note| note.starts_with("protected-mode:"));
        let line = made.text.lines().next().unwrap().to_owned();
        (line.strip_prefix("listen = ").unwrap().to_owned(), is_noted)
    };
    let on = ("protected-mode", "yes");
    let to_itself = (r#"["127.0.0.1"]"#.to_owned(), true);
    let open = |hosts: &str| (hosts.to_owned(), false);
    assert_eq!(listen(7, &[on]), to_itself);
    assert_eq!(listen(7, &[on, ("bind", "* -::*")]), to_itself);
    assert_eq!(listen(7, &[on, ("bind", "10.0.0.5")]), to_itself);
    assert_eq!(listen(7, &[on, ("bind", "10.0.0.5 127.0.0.1")]), to_itself);
    assert_eq!(listen(6, &[on]), to_itself);
    assert_eq!(listen(7, &[on, ("bind", "127.0.0.1 ::1")]), open(r#"["127.0.0.1", "::1"]"#));
    assert_eq!(listen(6, &[on, ("bind", "10.0.0.5")]), open(r#"["10.0.0.5"]"#));
    assert_eq!(listen(7, &[on, ("requirepass", "secret")]), open(r#"["*"]"#));
    assert_eq!(listen(7, &[("protected-mode", "no")]), open(r#"["*"]"#));
}

#[test]
fn settings_become_a_valid_file() {
    let made = from_redis(&redis(
        &[
            ("bind", "127.0.0.1 -::1"),
            ("port", "0"),
            ("tls-port", "6380"),
            ("tls-cert-file", "/etc/redis/c.pem"),
            ("tls-key-file", "/etc/redis/k.pem"),
            ("tls-auth-clients", "no"),
            ("maxmemory", "1073741824"),
            ("maxmemory-policy", "volatile-ttl"),
            ("maxclients", "10000"),
            ("timeout", "0"),
            ("requirepass", "secret"),
            ("save", "3600 1"),
        ],
        &[],
        &[],
    ));
    let checked = check("server.toml", made.text.clone());
    assert!(checked.faults.is_empty(), "{}", checked.to_text(false));
    let want = "\
listen = [\"127.0.0.1\"]
port = 6380
conn_limit = 10000
idle_timeout = 0
enable_ssl = true
ssl_chain_cert = \"/etc/redis/c.pem\"
ssl_key = \"/etc/redis/k.pem\"
ssl_verify_mode = 0
memory_limit = 1024
";
    assert_eq!(made.text, want);
    for part in
        ["volatile-ttl", "memory_file", "auth_file", "db0, db3", "longer than 250", "bind -::1"]
    {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    assert!(!made.notes.iter().any(|note| note.contains("secret")), "{:#?}", made.notes);
}

#[test]
fn unsupported_data_and_commands_are_noted() {
    let calls = [("hgetall", 7), ("setnx", 3), ("config|get", 9), ("ping", 1)];
    let made = from_redis(&redis(&[], &calls, &[("string", 90), ("hash", 10)]));
    for part in [
        "10 of 100 keys looked at are of the kind hash",
        "hgetall was called 7 times, and has no",
        "setnx was called 3 times: add",
    ] {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    assert!(
        !made.notes.iter().any(|note| note.contains("ping was") || note.contains("config|get"))
    );
}

#[test]
fn the_page_has_the_same_table_of_commands() {
    let page = include_str!("../../../docs/migrate-redis.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).collect();
    for (command, becomes) in COUNTERPARTS {
        let row = format!("| {command} | {becomes} |");
        assert!(rows.contains(&row.as_str()), "{row}");
    }
}

/// A server whose listing of keys does not end, and is empty.
#[test]
fn a_listing_without_end_is_sampled() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut scans = 0;
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let reply: &[u8] = match line.unwrap_or_default().as_str() {
                "CONFIG" => b"*0\r\n",
                "INFO" => b"$0\r\n\r\n",
                "SCAN" => {
                    scans += 1;
                    b"*2\r\n$1\r\n7\r\n*0\r\n"
                }
                _ => continue,
            };
            if stream.write_all(reply).is_err() {
                break;
            }
        }
        scans
    });
    let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
    let mut connection = tools::Redis::open(&address, &options).unwrap();
    let asked = Redis::ask(&mut connection).unwrap();
    assert!(asked.kinds.is_empty());
    drop(connection);
    assert_eq!(server.join().unwrap(), 1000);
}
