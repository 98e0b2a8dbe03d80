//! Addresses that others can reach, and secrets that others can read.

use super::Scene;
use crate::finding::{Finding, Level};

/// An address that others can reach, without a login.
pub(super) fn exposed(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for server in &scene.servers {
        let settings = &server.settings;
        let Some(address) = settings.open_address.as_ref().filter(|_| !settings.has_logins) else {
            continue;
        };
        found.push(Finding::by_hand(
            "exposed",
            Level::Warning,
            format!("{} listens on {address} without a login", server.shown()),
            "whoever reaches the address reads, changes and deletes every item",
            "listen on 127.0.0.1 or a private address behind a firewall, or ask for logins: -Y \
             FILE, and -Z for TLS (docs/security.md)",
        ));
    }
    for server in &scene.servers {
        let status = server.status(scene.host);
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let effective = uid.and_then(|ids| ids.split_whitespace().nth(1));
        if effective == Some("0") {
            found.push(Finding::by_hand(
                "root",
                Level::Warning,
                format!("{} runs as root", server.shown()),
                "a fault in it is a fault in the whole host",
                format!(
                    "start it with -u {}, or by the unit of its package",
                    user_of(&server.name)
                ),
            ));
        }
    }
}

/// The user created by a server's package.
fn user_of(server: &str) -> &'static str {
    if server == "memcached" { "memcache" } else { "holdall" }
}

/// Keys and users that everyone may read.
pub(super) fn readable(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for server in &scene.servers {
        for (what, file) in &server.settings.secrets {
            if scene.host.mode_for(server.pid, file).is_some_and(|mode| mode & 0o007 != 0) {
                let file = scene.host.shown_for(server.pid, file);
                found.push(Finding::by_hand(
                    "readable",
                    Level::Warning,
                    format!("the {what} of {} is open to all users: {file}", server.shown()),
                    "any process of the host can read it",
                    format!("chmod o= {file}"),
                ));
            }
        }
    }
}
