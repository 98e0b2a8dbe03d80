//! The servers that are compared unless the command line names others.

use std::path::Path;

use bench::process::{Launch, Server};

/// The name of the server without lookups (`src/bin/do-nothing.rs`).
pub const DO_NOTHING: &str = "do-nothing";

/// The name of the server that the others are compared with.
pub const MEMCACHED: &str = "memcached";

/// memcached, holdall and do-nothing, the last two from `folder`; one worker each. The first two
/// also answer UDP if `with_udp`.
#[must_use]
pub fn usual(folder: &Path, with_udp: bool) -> Vec<Server> {
    let own = |name: &str| folder.join(name).display().to_string();
    let command = |words: String| Launch::Command(words.split(' ').map(str::to_owned).collect());
    let common = "-l 127.0.0.1 -p {port} -m {memory} -t 1 -c 1024 -u root";
    let udp = if with_udp { "{port}" } else { "0" };
    vec![
        Server { name: MEMCACHED.into(), launch: command(format!("memcached -U {udp} {common}")) },
        Server {
            name: "holdall".into(),
            launch: command(format!("{} serve -U {udp} {common}", own("holdall"))),
        },
        Server {
            name: DO_NOTHING.into(),
            launch: command(format!("{} {{port}}", own(DO_NOTHING))),
        },
    ]
}
