//! Limits of processes.

use super::Scene;
use crate::finding::{Finding, Level};
use crate::servers::Server;

/// Descriptors in addition to connections: listeners, event queues, logs.
const OTHER_FILES: u64 = 64;

/// The open files that a server needs. memcached sets its own limit to exactly `-c` when it starts,
/// and no setting of its unit changes that.
fn wanted(server: &Server) -> u64 {
    let other = if server.name == "memcached" { 0 } else { OTHER_FILES };
    server.settings.connections + other
}

/// Open files compared with connections (`-c`).
pub(super) fn files(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for server in &scene.servers {
        let limits = scene.host.text(&format!("/proc/{}/limits", server.pid)).unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let soft = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        let wanted = wanted(server);
        if let Some(soft) = soft.filter(|soft| *soft < wanted) {
            found.push(Finding::by_hand(
                "open files",
                Level::Warning,
                format!(
                    "{} takes {} connections and may open {soft} files",
                    server.shown(),
                    server.settings.connections
                ),
                "new connections wait until others are closed",
                format!("LimitNOFILE={} in its unit, or ulimit -n", wanted.next_power_of_two()),
            ));
        }
    }
}
