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
        encoded_keys: 3,
        ..Redis::default()
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
fn users_need_a_login_and_those_of_redis_conf_are_no_exception() {
    let made = |config: &[(&str, &str)], users: &[(&str, bool)], has_login| {
        let users = users.iter().map(|(name, needs)| ((*name).to_owned(), *needs)).collect();
        let made = from_redis(&Redis { users, has_login, ..redis(config, &[], &[]) });
        let has = |part| made.notes.iter().any(|note: &String| note.contains(part));
        (has("protected-mode:"), has("lets everyone in"))
    };
    let on = [("protected-mode", "yes")];
    assert_eq!(made(&on, &[], false), (true, false));
    assert_eq!(made(&on, &[("default", false)], false), (true, false));
    assert_eq!(made(&on, &[("default", true)], false), (false, true));
    assert_eq!(made(&on, &[("default", false), ("app", true)], true), (true, true));
    assert_eq!(made(&[], &[("default", false), ("app", true)], true), (false, true));
    // Redis does not list its users.
    assert_eq!(made(&on, &[], true), (false, true));
}

#[test]
fn a_tls_port_is_a_further_port() {
    let config = [("bind", "10.0.0.5 ::1"), ("port", "6379"), ("tls-port", "6380")];
    let files = [
        ("tls-cert-file", "/etc/redis/c.pem"),
        ("tls-key-file", "/etc/redis/k.pem"),
        ("tls-auth-clients", "no"),
    ];
    let made = from_redis(&redis(&[config.as_slice(), &files].concat(), &[], &[]));
    let checked = check("server.toml", made.text.clone());
    assert!(checked.faults.is_empty(), "{}", checked.to_text(false));
    let listen = "listen = [\"notls:10.0.0.5:6379\", \"notls:[::1]:6379\", \"10.0.0.5:6380\", \
                  \"[::1]:6380\"]\nenable_ssl = true\n";
    assert!(made.text.starts_with(listen), "{}", made.text);
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
    let calls = [("hgetall", 7), ("setnx", 3), ("config|get", 9), ("ping", 1), ("type", 2)];
    let made = from_redis(&redis(&[], &calls, &[("string", 90), ("hash", 10)]));
    for part in [
        "10 of 100 keys looked at are of the kind hash",
        "hgetall was called 7 times, and has no",
        "setnx was called 3 times: add",
        "2 of 100 keys looked at are longer than 250 bytes, or than 186 with spaces",
        "3 of 100 keys looked at have spaces",
    ] {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    for part in ["ping was", "config|get", "type was"] {
        assert!(!made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
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
                "ACL" => b"-ERR unknown command\r\n",
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

/// A server with two users and three keys: one of bytes that are no text, one of 187 bytes with
/// spaces, and one that expires after its listing.
#[test]
fn users_and_keys_of_any_bytes_are_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut lines = BufReader::new(stream.try_clone().unwrap()).split(b'\n');
        let long = [b' '; 187];
        let keys: [&[u8]; 3] = [b"\xff\xfe1", &long, b"gone"];
        while let Some(Ok(line)) = lines.next() {
            let reply = match line.trim_ascii_end() {
                b"CONFIG" => b"*0\r\n".to_vec(),
                b"INFO" => b"$0\r\n\r\n".to_vec(),
                b"ACL" => {
                    b"*2\r\n+user app on #5e88 ~* +@all\r\n+user default off nopass -@all\r\n"
                        .to_vec()
                }
                b"SCAN" => {
                    let mut reply = b"*2\r\n$1\r\n0\r\n*3\r\n".to_vec();
                    for key in keys {
                        write!(reply, "${}\r\n", key.len()).unwrap();
                        reply.extend([key, b"\r\n"].concat());
                    }
                    reply
                }
                b"TYPE" => {
                    // The key's length comes before it.
                    let key = lines.nth(1).unwrap().unwrap();
                    let key = key.strip_suffix(b"\r").unwrap();
                    let is_there = keys[..2].contains(&key);
                    if is_there { b"+string\r\n".to_vec() } else { b"+none\r\n".to_vec() }
                }
                _ => continue,
            };
            if stream.write_all(&reply).is_err() {
                break;
            }
        }
    });
    let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
    let mut connection = tools::Redis::open(&address, &options).unwrap();
    let asked = Redis::ask(&mut connection).unwrap();
    let owned = |name: &str| name.to_owned();
    assert_eq!(asked.kinds, [(owned("string"), 2)].into());
    assert_eq!((asked.long_keys, asked.encoded_keys), (1, 0));
    assert_eq!(asked.users, [(owned("app"), true), (owned("default"), false)].into());
    drop(connection);
    server.join().unwrap();
}
