//! memcached's names, for programs that read the statistics of any server: memcached_exporter,
//! client libraries, memcached-tool.
//!
//! mcrouter refuses `stats settings`, `items` and `slabs`, and the exporter considers a server that
//! refuses one to be down. `cmd_set` of mcrouter's `stats` is a rate, but memcached's is a count.
//! So such counts are in `stats slabs`, which the exporter reads after `stats` and into the same
//! table (gomemcache's `statsFromAddr`, on which it is built).

use std::sync::atomic::Ordering;

use proto::reply::write_stat;
use upstream::{Command, Count, Event, Snapshot};

use super::{Kind, Lines};
use crate::shared::Shared;

/// memcached's names of commands with hits and misses, and the commands.
const COMMANDS: [(&str, &[Command]); 6] = [
    ("get", &[Command::Get, Command::Gets, Command::LeaseGet, Command::MetaGet]),
    ("delete", &[Command::Delete, Command::MetaDelete]),
    ("incr", &[Command::Incr, Command::MetaArithmetic]),
    ("decr", &[Command::Decr]),
    ("cas", &[Command::Cas, Command::MetaSet]),
    ("touch", &[Command::Touch, Command::Gat, Command::Gats]),
];

/// Commands that memcached counts as `cmd_set`, including `cas`.
const STORES: [Command; 8] = [
    Command::Add,
    Command::Append,
    Command::Cas,
    Command::LeaseSet,
    Command::MetaSet,
    Command::Prepend,
    Command::Replace,
    Command::Set,
];

fn sum(of: &Snapshot, commands: &[Command], what: fn(Command) -> Count) -> u64 {
    commands.iter().map(|command| of.get(what(*command))).sum()
}

/// Lines of `stats` whose names have no other meaning in mcrouter.
pub(super) fn lines(lines: &mut Lines, connections: &net::Stats, traffic: &Snapshot) {
    for (name, value) in [
        ("curr_connections", connections.curr_connections),
        ("total_connections", connections.total_connections),
        ("rejected_connections", connections.rejected_connections),
        ("listen_disabled_num", connections.listen_disabled_num),
        ("conn_yields", connections.conn_yields),
        ("accepting_conns", u64::from(connections.accepting_conns)),
        ("bytes_read", connections.bytes_read),
        ("bytes_written", connections.bytes_written),
    ] {
        lines.put(Kind::Own, name, value);
    }
    for (name, commands) in COMMANDS {
        // The reply to `ms` shows a cas unique only if it was refused.
        let hits: &[Command] = if name == "cas" { &[Command::Cas] } else { commands };
        lines.put(Kind::Own, format!("{name}_hits"), sum(traffic, hits, Count::Hit));
        lines.put(Kind::Own, format!("{name}_misses"), sum(traffic, commands, Count::Missed));
    }
    lines.put(Kind::Own, "cas_badval", traffic.event(Event::CasExists));
}

fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    write_stat(out, name.as_bytes(), value.to_string().as_bytes());
}

/// The lines of `stats slabs`: no class, only the counts of the module's header.
pub(super) fn slabs(out: &mut Vec<u8>, traffic: &Snapshot) {
    let asked = |commands: &[Command]| sum(traffic, commands, Count::Asked);
    let [get, .., touch] = COMMANDS;
    for (name, value) in [
        ("cmd_get", asked(get.1)),
        ("cmd_set", asked(&STORES)),
        ("cmd_flush", asked(&[Command::FlushAll])),
        ("cmd_touch", asked(touch.1)),
        ("active_slabs", 0),
        ("total_malloced", 0),
    ] {
        number(out, name, value);
    }
}

/// The lines of `stats settings` for a proxy.
pub(super) fn settings(out: &mut Vec<u8>, shared: &Shared) {
    let options = &shared.options;
    let port = shared.control.get().and_then(|control| control.tcp_addresses().next());
    // Relaxed: a number, which orders nothing else.
    let verbosity = shared.verbosity.load(Ordering::Relaxed);
    for (name, value) in [
        ("maxconns", options.max_conns as u64),
        ("tcpport", port.map_or(0, |address| u64::from(address.port()))),
        ("verbosity", u64::from(verbosity)),
        ("num_threads", options.num_proxies as u64),
    ] {
        number(out, name, value);
    }
}
