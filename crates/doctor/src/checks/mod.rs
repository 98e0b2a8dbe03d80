//! The checks, by subject.

mod clock;
mod cpu;
mod interface;
mod interrupts;
mod limits;
mod memory;
mod network;
mod security;
mod settings;

use crate::cpus::{self, Cpu};
use crate::finding::Finding;
use crate::host::Host;
use crate::servers::Server;

/// The objects of all checks.
pub(crate) struct Scene<'h> {
    pub host: &'h Host,
    pub cpus: Vec<Cpu>,
    pub servers: Vec<Server>,
    /// Network interfaces with a device, and those requested.
    pub nics: Vec<String>,
}

impl<'h> Scene<'h> {
    /// The scene of a host; without `nics`, with its physical interfaces.
    pub(crate) fn of(host: &'h Host, nics: &[String]) -> Self {
        let physical = || {
            let all = host.names("/sys/class/net").into_iter();
            all.filter(|nic| host.has(&format!("/sys/class/net/{nic}/device"))).collect()
        };
        Self {
            host,
            cpus: cpus::online(host),
            servers: Server::all(host),
            nics: if nics.is_empty() { physical() } else { nics.to_vec() },
        }
    }
}

/// A check.
type Check = fn(&Scene<'_>, &mut Vec<Finding>);

/// Every check, in the order of the output.
const CHECKS: [Check; 33] = [
    settings::known,
    cpu::threads,
    cpu::affinity,
    cpu::smt,
    cpu::turbo,
    cpu::governor,
    cpu::idle_states,
    cpu::aes,
    cpu::numa,
    memory::fits,
    memory::control_group,
    memory::swap,
    memory::overcommit,
    memory::huge_pages,
    network::backlog,
    network::overflows,
    network::ports,
    network::ports_taken,
    network::dropped,
    network::queues,
    network::steering,
    interrupts::spread,
    interrupts::balancer,
    interface::ring,
    interface::coalescing,
    interface::offloads,
    interface::joining,
    interface::hash,
    interface::sending,
    limits::files,
    clock::source,
    security::exposed,
    security::readable,
];

/// Every finding.
pub(crate) fn all(scene: &Scene<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for check in CHECKS {
        check(scene, &mut found);
    }
    found
}
