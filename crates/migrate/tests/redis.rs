//! The settings of a Redis as a file of ours.

use config::check;
use migrate::{COUNTERPARTS, Redis, from_redis};

fn redis(config: &[(&str, &str)], calls: &[(&str, u64)], kinds: &[(&str, u64)]) -> Redis {
    let owned = |name: &str| name.to_owned();
    Redis {
        config: config.iter().map(|(name, value)| (owned(name), owned(value))).collect(),
        calls: calls.iter().map(|(name, count)| (owned(name), *count)).collect(),
        databases: vec!["db0".to_owned(), "db3".to_owned()],
        kinds: kinds.iter().map(|(name, count)| (owned(name), *count)).collect(),
        long_keys: 2,
    }
}

#[test]
fn settings_become_a_file_without_a_fault() {
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
    assert!(checked.faults.is_empty(), "{}", checked.for_people(false));
    let want = "\
listen = [\"127.0.0.1\", \"::1\"]
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
    for part in ["volatile-ttl", "memory_file", "auth_file", "db0, db3", "longer than 250"] {
        assert!(made.notes.iter().any(|note| note.contains(part)), "{part}: {:#?}", made.notes);
    }
    assert!(!made.notes.iter().any(|note| note.contains("secret")), "{:#?}", made.notes);
}

#[test]
fn data_and_commands_without_a_counterpart_are_said() {
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
