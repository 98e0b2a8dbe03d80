//! The settings of a network interface's driver: rings, coalescing, offloads, the hash of its
//! queues, and the sending CPUs.

use super::Scene;
use super::interrupts::share_of_interrupts;
use crate::cpus;
use crate::ethtool::{self, Features};
use crate::finding::{Finding, Level, Setting};

/// The guide's start value (4.5.2), microseconds.
const RX_USECS: u64 = 350;

/// A delay too long for answers within a millisecond, microseconds.
const RX_USECS_LONG: u64 = 500;

/// Minimum number of received packets for a meaningful mean size.
const PACKETS_MIN: u64 = 1_000_000;

/// Mean packet size in bytes below which there is nothing to join.
const SMALL: u64 = 300;

/// Mean packet size in bytes from which joining is useful.
const LARGE: u64 = 1000;

/// Work that the card can do instead of the CPU, by ethtool's names.
const OFFLOADS: [&str; 4] =
    ["rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload"];

/// A receive ring that was full and could be longer.
pub(super) fn ring(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for nic in &scene.nics {
        let count = |name: &str| {
            scene.host.number(&format!("/sys/class/net/{nic}/statistics/{name}")).unwrap_or(0)
        };
        let lost = count("rx_missed_errors").max(count("rx_fifo_errors"));
        let Some(ring) = ethtool::receive_ring(scene.host, nic) else { continue };
        if lost > 0 && ring.now < ring.most {
            found.push(Finding::by_hand(
                "ring",
                Level::Warning,
                format!(
                    "{nic} lost {lost} packets, and its receive ring has {} of {} places",
                    ring.now, ring.most
                ),
                "each costs a retransmission, 200 ms and more",
                // It interrupts the link briefly, so it is not applied automatically.
                format!("ethtool -G {nic} rx {}  # the link is away for a moment", ring.most),
            ));
        }
    }
}

/// Interrupts that come one by one while they take most of the time, or so late that answers are
/// delayed (guide, 4.5.2: `rx-usecs`).
pub(super) fn coalescing(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let share = share_of_interrupts(scene.host);
    for nic in &scene.nics {
        let now = ethtool::coalescing(scene.host, nic);
        if let Some(now) = now.filter(|now| now.rx_usecs > RX_USECS_LONG && !now.is_adaptive) {
            found.push(Finding::by_settings(
                "coalescing",
                Level::Warning,
                format!("{nic} waits {} us before it says that a packet came", now.rx_usecs),
                "a request waits as long before the server sees it; the guide begins with 350 us",
                set("-C", nic, "rx-usecs", &RX_USECS.to_string()),
            ));
            continue;
        }
        let Some(share) = share else { continue };
        let fact = format!("{share} % of the busy time is spent in interrupts");
        let why = "fewer, later interrupts leave more time for requests; the guide begins with \
                   350 us";
        match now {
            Some(now) if now.rx_usecs >= RX_USECS || now.is_adaptive => {}
            Some(now) => found.push(Finding::by_settings(
                "coalescing",
                Level::Note,
                format!("{fact}, and {nic} waits {} us before one", now.rx_usecs),
                why,
                set("-C", nic, "rx-usecs", &RX_USECS.to_string()),
            )),
            None => {
                let command = format!("ethtool -C {nic} rx-usecs {RX_USECS}");
                found.push(Finding::by_hand("coalescing", Level::Note, fact, why, command));
            }
        }
    }
}

/// Work that the CPU does although the card could.
pub(super) fn offloads(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for nic in &scene.nics {
        let features = Features::of(scene.host, nic);
        let is_off = |name: &&str| features.is_on(name) == Some(false);
        let off: Vec<&str> = OFFLOADS.into_iter().filter(is_off).collect();
        if !off.is_empty() {
            found.push(Finding::by_settings(
                "offloads",
                Level::Note,
                format!("{nic} could do this and does not: {}", off.join(", ")),
                "a CPU computes it for each packet instead",
                off.iter().flat_map(|name| set("-K", nic, name, "on")).collect(),
            ));
        }
    }
}

/// Packets joined before the stack sees them, compared with their size (*Enhancing the Scalability
/// of Memcached*, 4.2.3, turns it off).
pub(super) fn joining(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    const GRO: &str = "generic-receive-offload";
    for nic in &scene.nics {
        let count = |name: &str| {
            scene.host.number(&format!("/sys/class/net/{nic}/statistics/{name}")).unwrap_or(0)
        };
        let (bytes, packets) = (count("rx_bytes"), count("rx_packets"));
        if packets < PACKETS_MIN {
            continue;
        }
        let mean = bytes / packets;
        let (fact, why, value) = match Features::of(scene.host, nic).is_on(GRO) {
            Some(true) if mean < SMALL => (
                format!("{nic} joins packets, which have {mean} bytes each"),
                "small requests give nothing to join, and the search costs each packet",
                "off",
            ),
            Some(false) if mean >= LARGE => (
                format!("{nic} joins no packets, which have {mean} bytes each"),
                "the stack handles each packet of a large value by itself",
                "on",
            ),
            _ => continue,
        };
        found.push(Finding::by_settings("gro", Level::Note, fact, why, set("-K", nic, GRO, value)));
    }
}

/// Receive queues that get nothing from the hash.
pub(super) fn hash(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for nic in &scene.nics {
        let Some(shares) = ethtool::table(scene.host, nic) else { continue };
        let idle = shares.iter().filter(|share| **share == 0).count();
        if idle > 0 {
            found.push(Finding::by_hand(
                "hash",
                Level::Warning,
                format!("{idle} of {} receive queues of {nic} are sent nothing", shares.len()),
                "their CPUs wait while those of the other queues are full",
                format!("ethtool -X {nic} equal {}", shares.len()),
            ));
        }
    }
}

/// Several send queues, none of them bound to a CPU (XPS): a CPU sends through a queue that another
/// CPU just used.
pub(super) fn sending(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let all: Vec<u32> = scene.cpus.iter().map(|cpu| cpu.number).collect();
    for nic in &scene.nics {
        let mut queues = scene.host.names(&format!("/sys/class/net/{nic}/queues"));
        queues.retain(|name| name.starts_with("tx-"));
        // By number: tx-10 comes after tx-9.
        queues.sort_by_key(|name| name[3..].parse::<u32>().unwrap_or(u32::MAX));
        let file = |queue: &String| format!("/sys/class/net/{nic}/queues/{queue}/xps_cpus");
        let is_unset = |queue: &String| {
            let mask = scene.host.text(&file(queue));
            mask.is_some_and(|mask| mask.chars().all(|digit| digit == '0' || digit == ','))
        };
        if queues.len() < 2 || all.len() < 2 || !queues.iter().all(is_unset) {
            continue;
        }
        let own = |place: usize| -> Vec<u32> {
            all.iter().copied().skip(place).step_by(queues.len()).collect()
        };
        let settings = queues
            .iter()
            .enumerate()
            .map(|(place, queue)| Setting { file: file(queue), value: cpus::mask(&own(place)) });
        found.push(Finding::by_settings(
            "sending",
            Level::Note,
            format!("{nic} has {} queues to send by, and none belongs to a CPU", queues.len()),
            "CPUs share the queues' locks and lines",
            settings.collect(),
        ));
    }
}

fn set(option: &str, nic: &str, name: &str, value: &str) -> Vec<Setting> {
    vec![Setting { file: ethtool::setting(option, nic, name), value: value.to_owned() }]
}
