//! Memory: limits against `-m`, swap, overcommit, huge pages.

use super::Scene;
use crate::finding::{Finding, Level, sysctl};
use crate::servers::Server;

/// Swappiness up to which the kernel swaps only if it must.
const SWAPPINESS_LOW: u64 = 10;

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// A number of kilobytes in a file of lines such as `MemTotal:  1024 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The maximum resident memory of all servers compared with the host's memory.
pub(super) fn fits(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some(info) = scene.host.text("/proc/meminfo") else { return };
    let Some(total) = kilobytes(&info, "MemTotal").map(|kb| kb * 1024) else { return };
    let wanted: u64 = scene.servers.iter().map(Server::resident_bytes).sum();
    if wanted > total {
        found.push(Finding::by_hand(
            "memory",
            Level::Warning,
            format!("the servers may use {} MB, and the host has {}", mib(wanted), mib(total)),
            "the kernel ends a server, or swaps its items, when they fill",
            "lower -m: 1.03 times the sum of all -m, and 16 MB for each server, must fit",
        ));
    }
}

/// The control group's limit against `-m`.
pub(super) fn control_group(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for server in &scene.servers {
        let groups = scene.host.text(&format!("/proc/{}/cgroup", server.pid)).unwrap_or_default();
        let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
            continue;
        };
        let Some(limit) = group_limit(scene, group) else { continue };
        if limit < server.resident_bytes() {
            found.push(Finding::by_hand(
                "control group",
                Level::Warning,
                format!(
                    "{} has -m {} and a control group of {} MB",
                    server.shown(),
                    mib(server.settings.memory_bytes),
                    mib(limit)
                ),
                "the control group ends the server before its memory is full",
                format!(
                    "systemctl set-property UNIT MemoryMax={}M, or -m {}",
                    mib(server.resident_bytes()),
                    mib(limit.saturating_sub(16 << 20) / 103 * 100).max(1)
                ),
            ));
        }
    }
}

/// The lowest limit on the path from a group to the root. The root itself has a limit in a
/// container, where the container's own group is shown as the root.
fn group_limit(scene: &Scene<'_>, group: &str) -> Option<u64> {
    let parts: Vec<&str> = group.split('/').filter(|part| !part.is_empty()).collect();
    (0..=parts.len())
        .filter_map(|depth| {
            let folder = parts[..depth].join("/");
            scene.host.number(&format!("/sys/fs/cgroup/{folder}/memory.max"))
        })
        .min()
}

/// Swap: a cache whose items are on disk is slower than its database.
pub(super) fn swap(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for server in &scene.servers {
        let swapped = kilobytes(&server.status(scene.host), "VmSwap").unwrap_or(0);
        if swapped > 0 {
            found.push(Finding::by_hand(
                "swap",
                Level::Warning,
                format!("{} KB of {} are swapped out", swapped, server.shown()),
                "a get of a swapped item waits for the disk, and with it all clients of its thread",
                "swapoff -a when memory is free, a smaller -m, or -k to lock memory",
            ));
        }
    }
    let has_swap = scene.host.text("/proc/swaps").is_some_and(|text| text.lines().count() > 1);
    let swappiness = scene.host.number("/proc/sys/vm/swappiness").unwrap_or(0);
    if has_swap && swappiness > SWAPPINESS_LOW && !scene.servers.is_empty() {
        found.push(Finding::by_settings(
            "swappiness",
            Level::Note,
            format!("the host has swap, and vm.swappiness is {swappiness}"),
            "the kernel prefers to swap items out over giving up file caches",
            sysctl("vm/swappiness", "1"),
        ));
    }
}

/// Strict overcommit refuses memory that is never used.
pub(super) fn overcommit(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    if scene.host.number("/proc/sys/vm/overcommit_memory") != Some(2) || scene.servers.is_empty() {
        return;
    }
    found.push(Finding::by_settings(
        "overcommit",
        Level::Warning,
        "vm.overcommit_memory is 2",
        "the server reserves address space for its limit, and a start is refused where the sum of \
         all reservations exceeds the commit limit",
        sysctl("vm/overcommit_memory", "0"),
    ));
}

/// `-L` if the kernel provides no huge pages.
pub(super) fn huge_pages(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let is_off = scene.host.text(FILE).is_some_and(|text| text.contains("[never]"));
    let asks = |server: &&Server| server.settings.huge_pages;
    if let Some(server) = scene.servers.iter().find(asks).filter(|_| is_off) {
        found.push(Finding::by_settings(
            "huge pages",
            Level::Warning,
            format!("{} asks for huge pages (-L), and the kernel gives none", server.shown()),
            "-L has no effect",
            vec![crate::finding::Setting { file: FILE.to_owned(), value: "madvise".to_owned() }],
        ));
    }
}
