//! The network stack: backlogs, ports, queues, steering.

use std::collections::BTreeSet;

use super::Scene;
use crate::cpus;
use crate::ethtool;
use crate::finding::{Finding, Level, Setting, sysctl};

const PORT_RANGE: &str = "net/ipv4/ip_local_port_range";
const RESERVED_PORTS: &str = "net/ipv4/ip_local_reserved_ports";

/// Ports that a proxy or a busy client needs for outgoing connections.
const PORTS_FEW: u64 = 20_000;

const FLOW_TABLE: &str = "net/core/rps_sock_flow_entries";

/// Entries of flow steering for a host.
const FLOW_ENTRIES: u64 = 32_768;

const PACKETS: &str = "net/core/netdev_max_backlog";

/// Received packets that may wait for a CPU: four times the kernel's default.
const PACKETS_QUEUED: u64 = 4000;

/// The backlog of new connections compared with the servers' setting (`-b`).
pub(super) fn backlog(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some(wanted) = scene.servers.iter().map(|server| server.settings.backlog).max() else {
        return;
    };
    for (name, shown) in [
        ("net/core/somaxconn", "net.core.somaxconn"),
        ("net/ipv4/tcp_max_syn_backlog", "net.ipv4.tcp_max_syn_backlog"),
    ] {
        let Some(limit) = scene.host.number(&format!("/proc/sys/{name}")) else { continue };
        if limit < wanted {
            found.push(Finding::by_settings(
                "backlog",
                Level::Warning,
                format!("{shown} is {limit}, and a server asks for a backlog of {wanted}"),
                "connections that come at once are dropped, and tried again after a second",
                sysctl(name, &wanted.next_power_of_two().max(1024).to_string()),
            ));
        }
    }
}

/// Connections lost because a backlog was full.
pub(super) fn overflows(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some(text) = scene.host.text("/proc/net/netstat") else { return };
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return };
    let mut counts = names.split_whitespace().zip(values.split_whitespace());
    let lost = counts.find(|(name, _)| *name == "ListenOverflows");
    let lost: u64 = lost.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    if lost > 0 && !scene.servers.is_empty() {
        found.push(Finding::by_hand(
            "overflows",
            Level::Note,
            format!("{lost} new connections found a full backlog since the host started"),
            "clients wait for a second and more until they are connected",
            "nstat -az TcpExtListenOverflows tells whether it still grows; then a greater -b and \
             net.core.somaxconn, or persistent connections",
        ));
    }
}

/// The first and the last port for outgoing connections.
fn port_range(scene: &Scene<'_>) -> Option<(u64, u64)> {
    let text = scene.host.text(&format!("/proc/sys/{PORT_RANGE}"))?;
    let mut ends = text.split_whitespace().filter_map(|end| end.parse::<u64>().ok());
    Some((ends.next()?, ends.next()?))
}

/// Ports for outgoing connections.
pub(super) fn ports(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some((first, last)) = port_range(scene) else { return };
    let count = (last + 1).saturating_sub(first);
    if count < PORTS_FEW {
        found.push(Finding::by_settings(
            "ports",
            Level::Note,
            format!("{count} ports are for outgoing connections ({first} to {last})"),
            "a proxy or client that connects often runs out of them",
            sysctl(PORT_RANGE, "32768 60999"),
        ));
    }
}

/// Ports of servers that the kernel may give to an outgoing connection: one finding for all of
/// them, because one list has all reserved ports, and a write replaces the list.
pub(super) fn ports_taken(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some((first, last)) = port_range(scene) else { return };
    let reserved = scene.host.text(&format!("/proc/sys/{RESERVED_PORTS}")).unwrap_or_default();
    let mut missing = BTreeSet::new();
    let mut listeners = Vec::new();
    for server in &scene.servers {
        for port in &server.settings.ports {
            if (first..=last).contains(port) && !is_reserved(&reserved, *port) {
                missing.insert(*port);
                listeners.push(format!("{} listens on {port}", server.shown()));
            }
        }
    }
    if missing.is_empty() {
        return;
    }
    let list = Some(reserved).filter(|list| !list.is_empty()).into_iter();
    let list: Vec<String> = list.chain(missing.iter().map(u64::to_string)).collect();
    found.push(Finding::by_settings(
        "port taken",
        Level::Warning,
        format!("{}, which outgoing connections may take", listeners.join(", ")),
        "a restart fails while an outgoing connection has the port",
        sysctl(RESERVED_PORTS, &list.join(",")),
    ));
}

/// True if a list such as `35000,36000-36010` has the port.
fn is_reserved(list: &str, port: u64) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = (first.trim().parse::<u64>(), last.trim().parse::<u64>());
        matches!(ends, (Ok(first), Ok(last)) if (first..=last).contains(&port))
    })
}

/// Packets that the kernel dropped between interface and socket.
pub(super) fn dropped(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some(text) = scene.host.text("/proc/net/softnet_stat") else { return };
    let column = |line: &str, column: usize| -> u64 {
        let word = line.split_whitespace().nth(column);
        word.and_then(|word| u64::from_str_radix(word, 16).ok()).unwrap_or(0)
    };
    let dropped: u64 = text.lines().map(|line| column(line, 1)).sum();
    if dropped == 0 {
        return;
    }
    let limit = scene.host.number(&format!("/proc/sys/{PACKETS}")).unwrap_or(1000);
    let text = format!("{dropped} packets were dropped since boot before a CPU could take them");
    let why = "each costs a retransmission, 200 ms and more";
    found.push(if limit < PACKETS_QUEUED {
        let setting = sysctl(PACKETS, &PACKETS_QUEUED.to_string());
        Finding::by_settings("dropped", Level::Warning, text, why, setting)
    } else {
        // The count never falls, so it does not show whether the present limit is enough.
        let command = format!(
            "if the second column of /proc/net/softnet_stat still grows, \
             sysctl -w net.core.netdev_max_backlog={}",
            limit.saturating_mul(2)
        );
        Finding::by_hand("dropped", Level::Note, text, why, command)
    });
}

fn queues_of(scene: &Scene<'_>, nic: &str) -> Vec<String> {
    let mut queues = scene.host.names(&format!("/sys/class/net/{nic}/queues"));
    queues.retain(|name| name.starts_with("rx-"));
    queues
}

/// Receive queues compared with cores (guide, 4.4.2: multi-queue handling).
pub(super) fn queues(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let cores = cpus::cores(&scene.cpus) as u64;
    for nic in &scene.nics {
        let queues = queues_of(scene, nic).len() as u64;
        let channels = ethtool::channels(scene.host, nic);
        let command = match channels {
            // If the card has more queues, they are recommended; otherwise there is no finding.
            Some(channels) if channels.now < cores.min(channels.most) => {
                format!("ethtool -L {nic} combined {}", cores.min(channels.most))
            }
            None if queues > 1 && queues < cores => {
                format!("ethtool -L {nic} combined {cores}  # as far as ethtool -l {nic} allows")
            }
            _ => continue,
        };
        let queues = channels.map_or(queues, |channels| channels.now);
        found.push(Finding::by_hand(
            "queues",
            Level::Note,
            format!("{nic} has {queues} receive queues for {cores} cores"),
            "cores without a queue take packets from others'",
            command,
        ));
    }
}

/// One queue and several CPUs: software must spread packets (RPS), and to the CPU whose thread
/// reads them (RFS).
pub(super) fn steering(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    if scene.cpus.len() < 2 {
        return;
    }
    for nic in &scene.nics {
        let queues = queues_of(scene, nic);
        let [queue] = queues.as_slice() else { continue };
        let file = format!("/sys/class/net/{nic}/queues/{queue}/rps_cpus");
        let Some(mask) = scene.host.text(&file) else { continue };
        if mask.chars().any(|digit| digit != '0' && digit != ',') {
            continue;
        }
        let all: Vec<u32> = scene.cpus.iter().map(|cpu| cpu.number).collect();
        let flows = format!("/sys/class/net/{nic}/queues/{queue}/rps_flow_cnt");
        // A host may have more entries already.
        let entries =
            |file: &str| scene.host.number(file).unwrap_or(0).max(FLOW_ENTRIES).to_string();
        let all_flows = entries(&format!("/proc/sys/{FLOW_TABLE}"));
        let mut settings = vec![Setting { file, value: cpus::mask(&all) }];
        settings.extend(sysctl(FLOW_TABLE, &all_flows));
        settings.push(Setting { value: entries(&flows), file: flows });
        found.push(Finding::by_settings(
            "steering",
            Level::Note,
            format!("{nic} has one receive queue, and one CPU takes all of its packets"),
            "that CPU is full before the others have work",
            settings,
        ));
    }
}
