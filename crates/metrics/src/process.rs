//! The process metrics of Prometheus's own libraries, and metrics of the build.
//!
//! Source: <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

use crate::family::Kind;
use crate::page::Page;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that the program was built from; `unknown` unless the builder has set
/// `HOLDALL_COMMIT`.
pub const COMMIT: &str = match option_env!("HOLDALL_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Writes `holdall_build_info` and `process_*`, except values that the system does not report.
pub fn process(page: &mut Page, role: &str) {
    page.set_prefix("holdall_");
    page.family("build_info", Kind::Gauge, "1, with the version, the commit and the role.");
    page.sample("build_info", &[("version", VERSION), ("commit", COMMIT), ("role", role)], 1);
    page.set_prefix("process_");
    if let Some(stat) = Stat::read() {
        of_stat(page, &stat);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them is for reading the folder.
        let count = open.count().saturating_sub(1);
        page.single("open_fds", Kind::Gauge, "Open file descriptors.", count);
    }
    if let Some(max) = fds_max() {
        page.single("max_fds", Kind::Gauge, "Most file descriptors that may be open.", max);
    }
}

fn of_stat(page: &mut Page, stat: &Stat) {
    let ticks_per_second = clock_ticks_per_second();
    #[expect(clippy::cast_precision_loss, reason = "53 bits of ticks are long enough")]
    let secs = |ticks: u64| ticks as f64 / ticks_per_second as f64;
    let cpu = secs(stat.cpu_ticks);
    page.single("cpu_seconds_total", Kind::Counter, "Processor time, user and system.", cpu);
    page.single("threads", Kind::Gauge, "Threads.", stat.threads);
    page.single("virtual_memory_bytes", Kind::Gauge, "Address space.", stat.virtual_bytes);
    let resident = stat.resident_pages.saturating_mul(page_size() as u64);
    page.single("resident_memory_bytes", Kind::Gauge, "Memory in use.", resident);
    if let Some(boot) = boot_secs() {
        #[expect(clippy::cast_precision_loss, reason = "53 bits of seconds are long enough")]
        let start = boot as f64 + secs(stat.start_ticks);
        page.single("start_time_seconds", Kind::Gauge, "Unix time of the start.", start);
    }
}

/// The part of `/proc/self/stat` that is shown.
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// The name of the process, in parentheses, may contain anything; the rest are numbers.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc_pid_stat(5) numbers the fields from 1, and the state, the first of these, is 3.
        let field = |number: usize| words.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Unix time at which the system started.
fn boot_secs() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The soft limit on descriptors.
fn fds_max() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 9 0 5000 1048576 256 18";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.cpu_ticks, stat.threads, stat.start_ticks), (42, 9, 5000));
        assert_eq!((stat.virtual_bytes, stat.resident_pages), (1_048_576, 256));
        assert!(Stat::parse("7 (a) S 1").is_none());
    }

    #[test]
    fn this_process_is_described() {
        let mut page = Page::new("");
        process(&mut page, "test");
        let text = page.into_text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
        };
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_threads") >= 1.0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(value("process_start_time_seconds") <= now.as_secs_f64() + 2.0);
        assert!(text.contains("holdall_build_info{version=\""), "{text}");
    }
}
