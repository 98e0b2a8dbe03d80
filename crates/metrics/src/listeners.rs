//! Connections by their listener: with several, the sums do not show which one is full or unused.

use crate::family::Kind;
use crate::page::Page;

const FAMILIES: [(&str, Kind, &str); 3] = [
    ("listener_connections", Kind::Gauge, "Open connections."),
    ("listener_connections_total", Kind::Counter, "Connections accepted."),
    ("listener_connections_rejected_total", Kind::Counter, "Connections turned away."),
];

/// Writes, for each listener by its address, the number of open connections, and of those accepted
/// and rejected since the start.
pub fn listeners(page: &mut Page, all: impl IntoIterator<Item = (String, [u64; 3])>) {
    let all: Vec<_> = all.into_iter().collect();
    for (index, (name, kind, help)) in FAMILIES.into_iter().enumerate() {
        page.family(name, kind, help);
        for (address, counts) in &all {
            page.sample(name, &[("listener", address)], counts[index]);
        }
    }
}
