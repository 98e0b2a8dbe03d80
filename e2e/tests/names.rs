//! holdall has every name that memcached has: statistics, settings and flags.
//! docs/compatibility/memcached.md lists the names left out, with reasons.
//!
//! The original is Debian's memcached, or the one that `MEMCACHED_BIN` names.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::Server;

/// The names of a group's statistics, without the numbers of classes and connections.
fn names(server: &Server, group: &str) -> BTreeSet<String> {
    let stats = server.stats(group).into_iter();
    stats
        .map(|(name, _)| {
            let parts = name.split(':').filter(|part| part.parse::<u64>().is_err());
            parts.collect::<Vec<_>>().join(":")
        })
        .collect()
}

/// A server with an item in use and a connection, so that each group has all its names.
fn filled(server: Server) -> Server {
    let mut wire = server.connect();
    wire.expect(b"set a 0 0 1\r\nx\r\nget a\r\n", b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    server
}

/// The words in backticks in the page's section of omitted names.
fn left_out() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compatibility/memcached.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (_, section) = text.split_once("\n## Names that are left out\n").unwrap();
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" |"));
    rows.flat_map(|(cell, _)| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

/// The names that memcached has and holdall lacks, except those that the page lists.
fn missing(theirs: BTreeSet<String>, ours: &BTreeSet<String>) -> Vec<String> {
    let left_out = left_out();
    theirs.into_iter().filter(|name| !ours.contains(name) && !left_out.contains(name)).collect()
}

#[test]
fn statistics() {
    for args in [&[][..], &["-o", "track_sizes,idle_timeout=100", "-M", "-A", "-D", ":"]] {
        let theirs = filled(Server::memcached(args));
        let ours = filled(Server::under_test(args));
        for group in ["", "settings", "items", "slabs"] {
            let missing = missing(names(&theirs, group), &names(&ours, group));
            assert!(missing.is_empty(), "stats {group}: {missing:?} of {args:?}");
        }
        // A name that is left out everywhere must not exist in both.
        let all = ["", "settings", "items", "slabs"].map(|group| names(&ours, group));
        let here: Vec<_> = left_out()
            .into_iter()
            .filter(|name| all.iter().any(|all| all.contains(name)))
            .collect();
        assert!(here.is_empty(), "on the page, and here: {here:?}");
    }
}

/// The lines of `stats conns` without values: in the order of descriptors, the listener, a client
/// that is sending a value, and the one that sends `stats conns`.
#[test]
fn connections_are_listed_as_memcached_lists_them() {
    let [theirs, ours] = [Server::memcached(&[]), Server::under_test(&[])].map(|server| {
        let (mut sender, mut asking) = (server.connect(), server.connect());
        sender.send(b"set k 0 0 10\r\nabc");
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            asking.send(b"stats conns\r\n");
            let text = String::from_utf8(asking.read_until(b"END\r\n")).unwrap();
            let shape = shape(&text, server.addr().port());
            // The start-up check's connection may still exist, or the value be missing.
            let is_there = shape.iter().any(|line| line == "1 state conn_nread");
            if is_there || Instant::now() > end {
                break shape;
            }
        }
    });
    assert_eq!(ours, theirs, "ours on the left");
    assert_eq!(ours.iter().filter(|line| line.ends_with(" conn_parse_cmd")).count(), 1, "{ours:?}");
}

/// Each line with the rank of its descriptor, and with kinds of addresses.
fn shape(text: &str, port: u16) -> Vec<String> {
    let mut descriptors: Vec<u32> = Vec::new();
    let stats = text.lines().filter_map(|line| line.strip_prefix("STAT "));
    let lines = stats.map(|stat| {
        let (descriptor, rest) = stat.split_once(':').unwrap();
        let (what, value) = rest.split_once(' ').unwrap();
        let descriptor = descriptor.parse().unwrap();
        if descriptors.last() != Some(&descriptor) {
            descriptors.push(descriptor);
        }
        let value = match value.rsplit_once(':') {
            Some((kind, at)) if at == port.to_string() => format!("{kind}:PORT"),
            Some((kind, _)) => kind.to_owned(),
            None if what == "secs_since_last_cmd" => "SECS".to_owned(),
            None => value.to_owned(),
        };
        format!("{} {what} {value}", descriptors.len() - 1)
    });
    let lines = lines.collect();
    assert!(descriptors.is_sorted(), "{descriptors:?}");
    lines
}

/// The flags of `--help`: short and long ones, and extended options.
fn flags(help: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    for line in help.lines() {
        if let Some(option) = line.strip_prefix("   - ") {
            let name = option.split_once(':').map(|(name, _)| name);
            // A heading has spaces.
            let name = name.filter(|name| !name.contains(' '));
            flags.extend(name.map(|name| format!("-o {name}")));
        } else if line.starts_with('-') {
            let words = line
                .split([' ', ',', '=', '<'])
                .take_while(|word| word.is_empty() || word.starts_with('-'));
            // `-vv` is `-v`, twice.
            let words = words.map(|word| if word.starts_with("-vv") { "-v" } else { word });
            flags.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
    flags
}

fn program(variable: &str, default: PathBuf) -> PathBuf {
    std::env::var_os(variable).map_or(default, PathBuf::from)
}

#[test]
fn flags_of_the_help() {
    let theirs = Command::new(program("MEMCACHED_BIN", "memcached".into())).arg("-h").output();
    let theirs = flags(&String::from_utf8(theirs.unwrap().stdout).unwrap());
    assert!(theirs.contains("-o hashpower") && theirs.contains("--unix-mask"), "{theirs:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/flags.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let ours: BTreeSet<String> = rows
        .flat_map(|(cell, _)| cell.split("`, `"))
        .map(|name| name.split(['=', '[']).next().unwrap_or_default())
        .map(|name| if name.starts_with('-') { name.to_owned() } else { format!("-o {name}") })
        .collect();
    let missing = missing(theirs, &ours);
    assert!(missing.is_empty(), "{missing:?} have no row in docs/flags.md");
}
