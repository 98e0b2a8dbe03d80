//! Interrupts of the network interfaces: their CPUs, and the programs that move them.

use super::Scene;
use crate::finding::{Finding, Level, Setting};
use crate::host::Host;

/// Share of an interface's interrupts on one CPU from which they count as not spread.
const ONE_SIDED: f64 = 0.8;

/// Share of the busy time in software interrupts from which coalescing is worth a try.
const SOFTIRQ_SHARE: f64 = 0.5;

/// Minimum time, in ticks, for meaningful shares.
const TICKS_MIN: u64 = 10_000;

/// Interrupts of an interface, by CPU.
struct Line {
    number: u32,
    counts: Vec<u64>,
}

fn lines_of(text: &str, nic: &str) -> Vec<Line> {
    let of = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        // `eth1` must not match the interrupts of `eth10`.
        let is_nic = rest.split_whitespace().any(|word| {
            word.strip_prefix(nic)
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        let counts = rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
        is_nic.then_some(Line { number, counts })
    };
    text.lines().filter_map(of).collect()
}

/// All interrupts of an interface on one CPU (guide, 4.5.2).
pub(super) fn spread(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some(text) = scene.host.text("/proc/interrupts") else { return };
    for nic in &scene.nics {
        let lines = lines_of(&text, nic);
        let by_cpu: Vec<u64> = (0..scene.cpus.len())
            .map(|column| lines.iter().filter_map(|line| line.counts.get(column)).sum())
            .collect();
        let (all, most) = (by_cpu.iter().sum::<u64>(), by_cpu.iter().max().copied().unwrap_or(0));
        if lines.len() < 2 || by_cpu.len() < 2 || all < TICKS_MIN {
            continue;
        }
        if (most as f64) < ONE_SIDED * all as f64 {
            continue;
        }
        let settings = lines.iter().zip(scene.cpus.iter().cycle()).map(|(line, cpu)| Setting {
            file: format!("/proc/irq/{}/smp_affinity_list", line.number),
            value: cpu.number.to_string(),
        });
        found.push(Finding::by_settings(
            "interrupts",
            Level::Warning,
            format!(
                "one CPU took {} % of the interrupts of {nic}'s {} queues",
                most * 100 / all,
                lines.len()
            ),
            "the CPU that serves the interface is full while others wait",
            settings.collect(),
        ));
    }
}

/// irqbalance, which overrides manual settings.
pub(super) fn balancer(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let pids = scene.host.names("/proc").into_iter().filter(|name| name.parse::<u32>().is_ok());
    let runs = pids
        .into_iter()
        .any(|pid| scene.host.text(&format!("/proc/{pid}/comm")).as_deref() == Some("irqbalance"));
    if runs && !scene.servers.is_empty() {
        found.push(Finding::by_hand(
            "irqbalance",
            Level::Note,
            "irqbalance runs",
            "it moves interrupts that were bound to CPUs by hand",
            "systemctl disable --now irqbalance, where interrupts are bound by hand",
        ));
    }
}

/// The share of the busy time in interrupts, in percent, if they take more than programs.
pub(super) fn share_of_interrupts(host: &Host) -> Option<u64> {
    let text = host.text("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    let is_much = busy >= TICKS_MIN && (irq + softirq) as f64 > SOFTIRQ_SHARE * busy as f64;
    is_much.then(|| (irq + softirq) * 100 / busy)
}
