//! Settings that cannot be read, so that other checks go by less than the server does.

use super::Scene;
use crate::finding::{Finding, Level};
use crate::settings::Unknown;

/// Servers whose settings are not known as a whole.
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
