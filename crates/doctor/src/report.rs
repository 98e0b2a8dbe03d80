//! Findings for the terminal, and a report of the host for fault reports.

use std::fmt::Write as _;

use crate::cpus;
use crate::finding::{Finding, Level};
use crate::host::Host;
use crate::servers::Server;

/// The findings, most serious first.
#[must_use]
pub fn text(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing found\n".to_owned();
    }
    let mut out = String::new();
    for level in [Level::Warning, Level::Note] {
        for finding in findings.iter().filter(|finding| finding.level == level) {
            let word = match level {
                Level::Warning => "warning",
                Level::Note => "note",
            };
            let _ = writeln!(out, "{word}: {}: {}", finding.check, finding.found);
            let _ = writeln!(out, "    why: {}", finding.why);
            let applied = if finding.settings.is_empty() { "" } else { "  (--apply does it)" };
            let mut lines = finding.command.lines();
            let _ = writeln!(out, "    do:  {}{applied}", lines.next().unwrap_or_default());
            for line in lines {
                let _ = writeln!(out, "         {line}");
            }
        }
    }
    let warnings = findings.iter().filter(|finding| finding.level == Level::Warning).count();
    let _ = writeln!(out, "\n{warnings} warnings, {} notes", findings.len() - warnings);
    out
}

/// The host, its servers and the findings, without names of users, keys or addresses of clients.
#[must_use]
pub fn report(host: &Host, findings: &[Finding]) -> String {
    let mut out = format!("holdall    {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: Option<String>| {
        let _ = writeln!(out, "{name:<11}{}", value.unwrap_or_else(|| "unknown".to_owned()));
    };
    let first = |file: &str, prefix: &str| {
        let text = host.text(file)?;
        let line = text.lines().find_map(|line| line.strip_prefix(prefix))?;
        Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    let cpus = cpus::online(host);
    line("kernel", host.text("/proc/sys/kernel/osrelease"));
    line("system", first("/etc/os-release", "PRETTY_NAME=").map(|name| name.replace('"', "")));
    line("processor", first("/proc/cpuinfo", "model name"));
    line("CPUs", Some(format!("{} on {} cores", cpus.len(), cpus::cores(&cpus))));
    line("memory", first("/proc/meminfo", "MemTotal"));
    line("clock", host.text("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    line("congestion", host.text("/proc/sys/net/ipv4/tcp_congestion_control"));
    for server in Server::all(host) {
        line("server", Some(server.line()));
    }
    out.push('\n');
    out.push_str(&text(findings));
    out
}
