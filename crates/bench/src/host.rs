//! The machine of a measurement, and the use of its processors' time.

use std::fs;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// The facts of the machine that a reader needs to judge a figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The processor's own name.
    pub cpu: String,
    /// Logical processors that this process may use.
    pub cpus: usize,
    /// Memory in MB.
    pub memory_mb: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// Version of this program.
    pub version: String,
    /// The commit it was built from; empty outside of its repository.
    #[serde(default)]
    pub commit: String,
    /// The hypervisor below, or empty.
    #[serde(default)]
    pub hypervisor: String,
    /// The frequency governor of the first processor, or empty where there is none.
    #[serde(default)]
    pub governor: String,
    /// Hyper-threading: `on`, `off`, `notsupported` and the like.
    #[serde(default)]
    pub smt: String,
    /// Network interfaces with a device: name, driver, megabits per second.
    #[serde(default)]
    pub nics: Vec<String>,
}

/// Processor time of the whole machine since its start, by use, in clock ticks; and context
/// switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// Programs, including niced ones; guests' time is part of it.
    pub user: u64,
    /// The kernel for programs.
    pub system: u64,
    /// Hardware interrupts.
    pub irq: u64,
    /// Software interrupts: the work of the network stack.
    pub softirq: u64,
    /// Taken away by the hypervisor.
    pub steal: u64,
    /// Virtual machines that run here.
    pub guest: u64,
    /// Idle with input or output in progress.
    pub iowait: u64,
    /// Idle.
    pub idle: u64,
    /// Context switches.
    pub switches: u64,
}

impl Host {
    /// This machine; unknown facts are empty.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = |line: &str| {
            line.strip_prefix("model name")?.split_once(':').map(|p| p.1.trim().to_owned())
        };
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let uname = rustix::system::uname();
        Self {
            cpu: cpuinfo.lines().find_map(model).unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mb: meminfo.lines().find_map(memory_kb).unwrap_or(0) / 1024,
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("HOLDALL_COMMIT").unwrap_or_default().to_owned(),
            hypervisor: hypervisor(&cpuinfo),
            governor: word("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            smt: word("/sys/devices/system/cpu/smt/control"),
            nics: nics(),
        }
    }

    /// The machine in one line; unknown facts are left out.
    #[must_use]
    pub fn describe(&self) -> String {
        let cpu = if self.cpu.is_empty() { "unknown processor" } else { &self.cpu };
        let mut parts = vec![
            cpu.to_owned(),
            format!("{} processors", self.cpus),
            format!("{} MB", self.memory_mb),
            self.kernel.clone(),
        ];
        for (name, value) in
            [("hypervisor", &self.hypervisor), ("governor", &self.governor), ("SMT", &self.smt)]
        {
            if !value.is_empty() {
                parts.push(format!("{name} {value}"));
            }
        }
        parts.extend(self.nics.iter().cloned());
        parts.join(", ")
    }

    /// This program, with its commit if known.
    #[must_use]
    pub fn program(&self) -> String {
        let commit =
            if self.commit.is_empty() { String::new() } else { format!(" ({})", self.commit) };
        format!("holdall {}{commit}", self.version)
    }
}

/// A file's text without the space around it; empty if it cannot be read.
fn word(file: &str) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The machine's maker, if the processor reports a hypervisor.
fn hypervisor(cpuinfo: &str) -> String {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags"));
    if !flags.any(|line| line.split_whitespace().any(|flag| flag == "hypervisor")) {
        return String::new();
    }
    let maker =
        ["sys_vendor", "product_name"].map(|name| word(&format!("/sys/class/dmi/id/{name}")));
    let maker = maker.join(" ").trim().to_owned();
    if maker.is_empty() { "of an unknown maker".to_owned() } else { maker }
}

fn nics() -> Vec<String> {
    let folders = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut nics: Vec<String> = folders
        .filter_map(|entry| {
            let driver = fs::read_link(entry.path().join("device/driver")).ok()?;
            let driver = driver.file_name()?.to_string_lossy().into_owned();
            let name = entry.file_name().to_string_lossy().into_owned();
            // Virtual interfaces report no speed, or -1.
            let speed = word(&format!("/sys/class/net/{name}/speed")).parse::<u64>();
            let speed = speed.map(|speed| format!(" {speed} Mb/s")).unwrap_or_default();
            Some(format!("{name} ({driver}{speed})"))
        })
        .collect();
    nics.sort();
    nics
}

fn memory_kb(line: &str) -> Option<u64> {
    line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok()
}

impl CpuTimes {
    /// The counters now; `None` without `/proc/stat`.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the text of `/proc/stat` (proc(5)).
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let switches = stat.lines().find_map(|line| line.strip_prefix("ctxt "));
        let switches = switches.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        Some(Self { switches, ..Self::of_fields(line)? })
    }

    /// The times of each processor, in order; their switches are not separated.
    pub(crate) fn parse_each(stat: &str) -> Vec<Self> {
        let of_line = |line: &str| {
            let (number, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
            number.parse::<u32>().ok()?;
            Self::of_fields(fields)
        };
        stat.lines().filter_map(of_line).collect()
    }

    fn of_fields(line: &str) -> Option<Self> {
        let fields: Vec<u64> =
            line.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, guest, ..] = fields[..] else {
            return None;
        };
        Some(Self {
            user: user + nice,
            system,
            irq,
            softirq,
            steal,
            guest,
            iowait,
            idle,
            switches: 0,
        })
    }

    /// All time of the processors, in ticks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.user + self.system + self.irq + self.softirq + self.steal + self.iowait + self.idle
    }

    /// Shares of the time in percent, named as in `top`, in drawing order.
    #[must_use]
    pub fn shares(&self) -> [(&'static str, f64); 6] {
        #[allow(clippy::cast_precision_loss, reason = "ticks of one measurement")]
        let share = |ticks: u64| ticks as f64 * 100.0 / self.total().max(1) as f64;
        [
            ("user", share(self.user)),
            ("system", share(self.system)),
            ("irq", share(self.irq)),
            ("softirq", share(self.softirq)),
            ("steal", share(self.steal)),
            ("idle", share(self.idle + self.iowait)),
        ]
    }
}

impl Add for CpuTimes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            irq: self.irq + other.irq,
            softirq: self.softirq + other.softirq,
            steal: self.steal + other.steal,
            guest: self.guest + other.guest,
            iowait: self.iowait + other.iowait,
            idle: self.idle + other.idle,
            switches: self.switches + other.switches,
        }
    }
}

impl Sub for CpuTimes {
    type Output = Self;

    /// The use since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
            guest: self.guest.saturating_sub(earlier.guest),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            idle: self.idle.saturating_sub(earlier.idle),
            switches: self.switches.saturating_sub(earlier.switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_is_parsed() {
        let stat = "cpu  10 2 5 80 1 0 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nctxt 99\n";
        let times = CpuTimes::parse(stat).unwrap();
        assert_eq!((times.user, times.system, times.idle, times.softirq), (12, 5, 80, 3));
        assert_eq!((times.steal, times.switches, times.total()), (4, 99, 105));
        let sum: f64 = times.shares().iter().map(|(_, share)| share).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        let each = CpuTimes::parse_each(stat);
        assert_eq!((each.len(), each[0].user, each[0].softirq), (1, 2, 1));
        assert_eq!(CpuTimes::parse("nothing"), None);
    }

    #[test]
    fn a_hypervisor_is_detected_by_the_cpu_flag() {
        assert_eq!(hypervisor("flags\t\t: fpu vme sse2\n"), "");
        assert!(!hypervisor("flags\t\t: fpu hypervisor sse2\n").is_empty());
    }

    #[test]
    fn unknown_host_properties_are_omitted() {
        let host = Host { cpus: 2, kernel: "Linux 6".into(), ..Host::default() };
        assert_eq!(host.describe(), "unknown processor, 2 processors, 0 MB, Linux 6");
        let host = Host { smt: "off".into(), nics: vec!["eth0 (x)".into()], ..host };
        assert!(host.describe().ends_with("Linux 6, SMT off, eth0 (x)"));
    }

    #[test]
    fn this_machine_has_processors_and_memory() {
        let host = Host::here();
        assert!(
            host.cpus > 0 && host.memory_mb > 0 && host.kernel.starts_with("Linux"),
            "{host:?}"
        );
    }
}
