//! Unreadable settings, without which other checks know less than the server.

use super::Scene;
use crate::finding::{Finding, Level};
use crate::settings::Unknown;

/// Servers with partly unknown settings.
pub(super) fn known(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for server in &scene.servers {
        found.extend(server.unknown.as_ref().map(|unknown| match unknown {
            Unknown::Environment => Finding::by_hand(
                "settings",
                Level::Note,
                format!("the environment of {} cannot be read", server.shown()),
                "a variable such as HOLDALL_MEMORY_LIMIT, or a file that it names, is not seen",
                "run holdall doctor as root, or as the server's user",
            ),
            Unknown::Refused(reason) => Finding::by_hand(
                "settings",
                Level::Warning,
                format!("the settings of {} cannot be read: {reason}", server.shown()),
                "memory, files, ports, logins and addresses are judged by its flags alone",
                "holdall config check FILE; run holdall doctor as root, or as the server's user",
            ),
        }));
    }
}
