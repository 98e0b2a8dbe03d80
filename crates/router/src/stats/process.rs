//! Figures of this process from the operating system.

use std::fs;

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::{Kind, Lines};

/// Values that the system does not report are left out.
pub(super) fn lines(lines: &mut Lines) {
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let secs = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let [user, system] = [Usage::user_time, Usage::system_time].map(|time| secs(time(&usage)));
        // In memcached's form; memcached_exporter reads seconds and microseconds separately.
        for (name, secs) in [("rusage_user", user), ("rusage_system", system)] {
            lines.put(Kind::Ods, name, format_args!("{secs:.6}"));
        }
        for (name, secs) in [("ps_user_time_sec", user), ("ps_system_time_sec", system)] {
            lines.put_fraction(Kind::Ods, name, secs);
        }
        lines.put(Kind::Ods, "ps_num_minor_faults", usage.minor_page_faults());
        lines.put(Kind::Ods, "ps_num_major_faults", usage.major_page_faults());
    }
    for (name, field) in [("ps_rss", "VmRSS:"), ("ps_vsize", "VmSize:")] {
        if let Some(bytes) = status(field) {
            lines.put(Kind::Ods, name, bytes);
        }
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        lines.put(Kind::Ods, "ps_open_fd", files.count());
    }
}

/// A size of `/proc/self/status`, in bytes.
fn status(field: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
