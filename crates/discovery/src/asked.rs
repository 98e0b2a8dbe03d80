//! Answers between two questions. A configuration is read by them without waiting for anybody,
//! while sources and resolvers are asked again elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::thread;

use parking_lot::Mutex;

use crate::PATIENCE;
use crate::deadline::Deadline;
use crate::names::System;

/// Every address of a host, or the reason why they are not known.
pub type Addresses = Result<BTreeSet<IpAddr>, String>;

/// What was answered last.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Whether a source whose servers are known named them, or why not, by its name.
    pub(crate) sources: Mutex<BTreeMap<String, Result<(), String>>>,
    pub(crate) hosts: Mutex<BTreeMap<String, Addresses>>,
}

/// Questions that wait for their answers at the same time.
const AT_ONCE_MAX: usize = 32;

/// Works on all items, on several at the same time: most of the work is waiting.
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
            // Without another thread, those that there are do its part.
            let _ = thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}

/// Looks hosts up, each within the time that a source has.
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
