//! The installed libmemcached and ours place every key alike. Debian's package libmemcached-tools
//! brings the library.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::process::Command;

use hashing::{KeyHash, Placement};

/// The output of `vectors/libmemcached.py`.
fn vectors() -> Vec<Vec<String>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/libmemcached.py");
    let output = Command::new("python3").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

fn key_of(hex: &str) -> Vec<u8> {
    let digits = if hex == "-" { "" } else { hex };
    let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn servers_of(pool: &str) -> Vec<(&str, u16, u32)> {
    let servers = pool.split(',').map(|server| {
        let mut parts = server.split(':');
        let mut part = || parts.next().unwrap();
        (part(), part().parse().unwrap(), part().parse().unwrap())
    });
    servers.collect()
}

fn placement_of(distribution: &str, hash: KeyHash, pool: &str) -> Placement {
    let servers = servers_of(pool);
    let plain: Vec<_> = servers.iter().map(|(host, port, _)| (*host, *port)).collect();
    match distribution {
        "modula" => Placement::modula(servers.len(), hash),
        "consistent" | "ketama" => Placement::ketama(&plain, hash),
        "ketama_weighted" => Placement::ketama_weighted(&servers, hash),
        "ketama_spy" => Placement::ketama_spy(&servers, hash),
        other => unreachable!("{other}"),
    }
    .unwrap()
}

#[test]
fn hashes_and_placements_match_libmemcached() {
    let (mut hashes, mut places) = (0, 0);
    for line in vectors() {
        let words: Vec<_> = line.iter().map(String::as_str).collect();
        match words[..] {
            ["hash", name, key, value] => {
                let got = KeyHash::by_name(name).unwrap().hash(&key_of(key));
                assert_eq!(got.to_string(), value, "{line:?}");
                hashes += 1;
            }
            ["place", distribution, hash, pool, want] => {
                let hash = KeyHash::by_name(hash).unwrap();
                let placement = placement_of(distribution, hash, pool);
                for (number, want) in want.split(',').enumerate() {
                    let got = placement.pick(format!("key:{number}").as_bytes());
                    assert_eq!(
                        got.to_string(),
                        want,
                        "key:{number}, {distribution} {hash:?} {pool}"
                    );
                    places += 1;
                }
            }
            _ => panic!("{line:?}"),
        }
    }
    assert_eq!((hashes, places), (260, 15_000));
}
