//! The latest answers. Configurations are read with them without waiting, while sources and
//! resolvers are queried elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread;

use parking_lot::Mutex;

use crate::PATIENCE;
use crate::deadline::Deadline;
use crate::names::System;

/// Every address of a host, or the reason why they are unknown.
pub type Addresses = Result<BTreeSet<IpAddr>, String>;

/// The last answers.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// The outcome of the last query of each source with known servers, by its name.
    pub(crate) sources: Mutex<BTreeMap<String, Result<(), String>>>,
    pub(crate) hosts: Mutex<BTreeMap<String, Addresses>>,
}

/// Maximum number of concurrent queries.
const AT_ONCE_MAX: usize = 32;

/// Works on all items, several at a time, since most of the work is waiting.
pub(crate) fn for_each<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let left = Mutex::new(items.iter());
    let next = || left.lock().next();
    let run = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    thread::scope(|scope| {
        for _ in 1..items.len().min(AT_ONCE_MAX) {
            // Without another thread, the existing ones do its part.
            let _ = thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}

/// Looks hosts up, each within a source's time limit.
pub(crate) fn look_up(hosts: &[String]) -> BTreeMap<String, Addresses> {
    let system = System::read();
    let found = Mutex::new(BTreeMap::new());
    for_each(hosts, |host| {
        let addresses = match &system {
            Ok(system) => system.addresses(host, Deadline::after(PATIENCE)),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        };
        found.lock().insert(host.clone(), addresses.map_err(|error| error.to_string()));
    });
    found.into_inner()
}
