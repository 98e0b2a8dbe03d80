//! Connections by the listener that they came to: with several, the sums do not tell which is full
//! or unused.

use crate::family::Kind;
use crate::page::Page;

const FAMILIES: [(&str, Kind, &str); 3] = [
    ("listener_connections", Kind::Gauge, "Open connections."),
    ("listener_connections_total", Kind::Counter, "Connections accepted."),
    ("listener_connections_rejected_total", Kind::Counter, "Connections turned away."),
];

/// Writes, for each listener by its address, how many connections are open, and how many were
/// accepted and turned away since the start.
pub fn listeners(page: &mut Page, all: impl IntoIterator<Item = (String, [u64; 3])>) {
    let all: Vec<_> = all.into_iter().collect();
    for (index, (name, kind, help)) in FAMILIES.into_iter().enumerate() {
        page.family(name, kind, help);
        for (address, counts) in &all {
            page.sample(name, &[("listener", address)], counts[index]);
        }
    }
}
