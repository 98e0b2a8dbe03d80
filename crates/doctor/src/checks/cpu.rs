//! Processors: threads, affinity, SMT, turbo, frequency, idle states, AES, NUMA.

use super::Scene;
use crate::cpus;
use crate::finding::{Finding, Level, Setting};

const CPUS: &str = "/sys/devices/system/cpu";

/// Threads against cores (deployment guide, 4.5.2; the study's thread scaling).
pub(super) fn threads(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let cores = cpus::cores(&scene.cpus);
    for server in &scene.servers {
        let threads = server.threads(scene.host);
        if cores > 0 && threads > cores as u64 {
            found.push(Finding::by_hand(
                "threads",
                Level::Warning,
                format!("{} has {threads} threads on {cores} cores", server.shown()),
                "threads that share a core take its caches from each other and wait for it",
                format!("restart it with -t {cores}"),
            ));
        }
    }
}

/// An affinity set from outside.
pub(super) fn affinity(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    for server in &scene.servers {
        let allowed = server.cpus(scene.host);
        if allowed.is_empty() || allowed.len() >= scene.cpus.len() {
            continue;
        }
        let is_short = (allowed.len() as u64) < server.threads(scene.host);
        found.push(Finding::by_hand(
            "affinity",
            if is_short { Level::Warning } else { Level::Note },
            format!(
                "{} may use {} of {} CPUs, for {} threads",
                server.shown(),
                allowed.len(),
                scene.cpus.len(),
                server.threads(scene.host)
            ),
            "threads cannot spread over more CPUs than the affinity has",
            format!("taskset -apc 0-{} {}", scene.cpus.len().saturating_sub(1), server.pid),
        ));
    }
}

/// Hyper-Threading, which the guide requires on (4.5.1).
pub(super) fn smt(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    if scene.host.text(&format!("{CPUS}/smt/control")).as_deref() == Some("off") {
        found.push(Finding::by_settings(
            "smt",
            Level::Note,
            "SMT is switched off",
            "interrupts of the network can run on the second thread of a core (+8 % in Enhancing \
             the Scalability of Memcached, section 5)",
            vec![Setting { file: format!("{CPUS}/smt/control"), value: "on".to_owned() }],
        ));
    }
}

/// Turbo, which the guide requires on (4.5.1).
pub(super) fn turbo(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let intel = (format!("{CPUS}/intel_pstate/no_turbo"), "1", "0");
    let others = (format!("{CPUS}/cpufreq/boost"), "0", "1");
    for (file, off, on) in [intel, others] {
        if scene.host.text(&file).as_deref() == Some(off) {
            found.push(Finding::by_settings(
                "turbo",
                Level::Warning,
                "turbo is switched off",
                "a turbo brought 23 % in Enhancing the Scalability of Memcached, section 5",
                vec![Setting { file, value: on.to_owned() }],
            ));
            return;
        }
    }
}

/// The governor of the clock frequency.
pub(super) fn governor(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let file = |cpu: u32| format!("{CPUS}/cpu{cpu}/cpufreq/scaling_governor");
    let slow: Vec<(u32, String)> = scene
        .cpus
        .iter()
        .filter_map(|cpu| Some((cpu.number, scene.host.text(&file(cpu.number))?)))
        .filter(|(_, governor)| governor == "powersave" || governor == "conservative")
        .collect();
    // Intel's driver calls its ordinary governor powersave, although it is not one.
    let driver = scene.host.text(&format!("{CPUS}/cpu0/cpufreq/scaling_driver"));
    if slow.is_empty() || driver.as_deref() == Some("intel_pstate") {
        return;
    }
    let settings =
        slow.iter().map(|(cpu, _)| Setting { file: file(*cpu), value: "performance".to_owned() });
    found.push(Finding::by_settings(
        "governor",
        Level::Note,
        format!("{} CPUs have the governor {}", slow.len(), slow[0].1),
        "a clock that rises late adds to the latency of short requests",
        settings.collect(),
    ));
}

/// C-states, which the guide requires on (4.5.1).
pub(super) fn idle_states(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let driver = scene.host.text(&format!("{CPUS}/cpuidle/current_driver"));
    let is_virtual = scene.host.text("/proc/cpuinfo").is_some_and(|text| {
        text.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"))
    });
    if driver.as_deref() == Some("none") && !is_virtual {
        found.push(Finding::by_hand(
            "idle states",
            Level::Note,
            "C-states are switched off",
            "idle CPUs draw full power, and busy ones have less room for turbo",
            "switch C-states and SpeedStep on in the firmware, and take idle=poll or \
             intel_idle.max_cstate=0 from the kernel's command line",
        ));
    }
}

/// TLS without instructions for AES.
pub(super) fn aes(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let Some(info) = scene.host.text("/proc/cpuinfo") else { return };
    let flags = info.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let Some(flags) = flags else { return };
    if flags.split_whitespace().any(|flag| flag == "aes") {
        return;
    }
    for server in scene.servers.iter().filter(|server| server.settings.has_tls) {
        found.push(Finding::by_hand(
            "aes",
            Level::Warning,
            format!("{} speaks TLS, and the CPU has no instructions for AES", server.shown()),
            "every byte is encrypted by plain code",
            "in a virtual machine let it see the host's CPU (host passthrough)",
        ));
    }
}

/// Several memory nodes.
pub(super) fn numa(scene: &Scene<'_>, found: &mut Vec<Finding>) {
    let nodes = scene.host.names("/sys/devices/system/node");
    let nodes = nodes.iter().filter(|name| {
        name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
    });
    let count = nodes.count();
    if count > 1 && scene.servers.len() == 1 {
        let server = &scene.servers[0];
        found.push(Finding::by_hand(
            "numa",
            Level::Note,
            format!("{} alone uses {count} memory nodes", server.shown()),
            "half of all accesses and more go to the other node's memory",
            format!(
                "run one server for each node: numactl --cpunodebind=0 --membind=0 {} .., with \
                 its share of -m and of -t; or spread the memory of one: -o numa_interleave",
                server.name
            ),
        ));
    }
}
