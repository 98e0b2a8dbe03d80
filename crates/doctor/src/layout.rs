//! The CPUs for threads and interrupts on a host with Hyper-Threading: a server's thread on the
//! first logical CPU of each core, interrupts on the second (*Enhancing the Scalability of
//! Memcached*, section 4.2.3, table 2).

use std::fmt::Write as _;

use crate::cpus::{self, Cpu};
use crate::host::Host;

/// The table of this host.
#[must_use]
pub fn layout(host: &Host) -> String {
    let all = cpus::online(host);
    let mut cores: Vec<(u32, u32)> = all.iter().map(|cpu| (cpu.package, cpu.core)).collect();
    cores.sort_unstable();
    cores.dedup();
    let mut out = String::from("socket  core  thread on CPU  interrupts on CPU\n");
    let mut threads = Vec::new();
    for (package, core) in &cores {
        let of: Vec<&Cpu> =
            all.iter().filter(|cpu| (cpu.package, cpu.core) == (*package, *core)).collect();
        let Some(first) = of.first() else { continue };
        let second = of.get(1).unwrap_or(first);
        threads.push(first.number.to_string());
        let _ =
            writeln!(out, "{package:>6}  {core:>4}  {:>13}  {:>17}", first.number, second.number);
    }
    let _ = writeln!(
        out,
        "\nholdall serve -t {} -o affinity={}",
        threads.len().max(1),
        threads.join(":")
    );
    out
}
