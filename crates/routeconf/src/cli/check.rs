//! `holdall check FILE`.

use std::path::Path;

use serde_json::{Value, json};

use super::offline;
use super::offline::Assumptions;
use super::{STATUS_BROKEN, STATUS_GOOD, STATUS_WARNINGS, Said, Words};
use crate::host_id;
use crate::lint::{lint, only_server};
use crate::{Diagnostic, Files, Loaded, Rejected, Severity};

const HELP: &str = "\
Checks a router configuration: mcrouter's language, or twemproxy's YAML.

Usage: holdall check FILE.. [--json] [--route-prefix /REGION/CLUSTER/]

Servers and sources of servers (dns:, srv:, etcd:, elasticache:) are not asked. Without --route-prefix, where no route has the
prefix /././, that of the first route counts.

Each finding is one line: file:line:column: error, warning or note: what (what to do); with --json an object of file, line, column,
severity, message and hint, in an array.

Examples:
  holdall check router.json
  holdall check --json nutcracker.yml

Exit status: 0 nothing found or notes only, 1 warnings, 2 errors, 64 wrong arguments.
";

/// Checks the files that the arguments name.
#[must_use]
pub fn check(arguments: impl Iterator<Item = String>) -> Said {
    let words = match Words::new("check", arguments, &["--route-prefix", "--json"]) {
        Ok(words) => words,
        Err(said) => return said,
    };
    if words.help {
        return Said::help(HELP);
    }
    if words.version {
        return Said::version("check");
    }
    if words.words.is_empty() {
        return Said::usage("check", "a file is missing");
    }
    let has_colours = usage::has_colours();
    let (mut said, mut objects) = (Said::default(), Vec::new());
    for file in &words.words {
        let (loaded, assumed) =
            offline::read(Path::new(file), words.flag("--route-prefix"), host_id());
        said.err.push_str(&assumed.notes("check", file));
        let (files, findings, status) = found(loaded, &assumed);
        said.status = said.status.max(status);
        for mut finding in findings {
            finding.message = assumed.named(finding.message);
            if words.json {
                objects.push(object(&finding, &files));
            } else {
                said.out.push_str(&line(&finding, &files, has_colours));
                said.out.push('\n');
            }
        }
    }
    if words.json {
        said.out = format!("{:#}\n", Value::from(objects));
    }
    said
}

/// A finding as a line; with colours, its severity is red, yellow or blue.
fn line(finding: &Diagnostic, files: &Files, has_colours: bool) -> String {
    let (plain, severity) = (finding.render(files), finding.severity);
    if !has_colours {
        return plain;
    }
    let colour = match severity {
        Severity::Error => "91",
        Severity::Warning => "93",
        Severity::Note => "94",
    };
    let painted = format!(": \u{1b}[1;{colour}m{severity}\u{1b}[0m: ");
    plain.replacen(&format!(": {severity}: "), &painted, 1)
}

fn object(finding: &Diagnostic, files: &Files) -> Value {
    json!({
        "file": files.name(finding.at.file),
        "line": finding.at.line,
        "column": finding.at.column,
        "severity": finding.severity.to_string(),
        "message": finding.message,
        "hint": finding.hint,
    })
}

fn found(loaded: Result<Loaded, Rejected>, assumed: &Assumptions) -> (Files, Vec<Diagnostic>, u8) {
    match loaded {
        Err(rejected) => (rejected.files, rejected.findings, STATUS_BROKEN),
        Ok(loaded) => {
            let mut findings = loaded.warnings;
            findings.extend(lint(&loaded.config));
            // The number of a source's servers is not known here.
            findings.extend(only_server(&loaded.config).filter(|_| !assumed.has_sources()));
            let is_good = findings.iter().all(|finding| finding.severity == Severity::Note);
            let status = if is_good { STATUS_GOOD } else { STATUS_WARNINGS };
            (loaded.config.files, findings, status)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_severity_is_coloured_on_a_terminal() {
        let (loaded, assumed) = offline::read(Path::new("/no/such/file"), None, 0);
        let (files, findings, _) = found(loaded, &assumed);
        let plain = line(&findings[0], &files, false);
        let painted = line(&findings[0], &files, true);
        assert!(plain.starts_with("/no/such/file: error: "), "{plain}");
        assert_eq!(painted, plain.replacen("error", "\u{1b}[1;91merror\u{1b}[0m", 1));
    }

    #[test]
    fn a_failover_to_the_same_servers_is_found_behind_a_share() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("routes.json");
        for gutter in ["", r#", "weights_rv": "w""#] {
            let text = format!(
                r#"{{"pools": {{"A": {{"servers": ["h:1", "h:2"]}}}}, "route": {{
                    "type": "FailoverRoute", "children": ["PoolRoute|A",
                        {{"type": "PoolRoute", "pool": "A"{gutter}}}]}}}}"#
            );
            std::fs::write(&file, text).unwrap();
            let (loaded, assumed) = offline::read(&file, None, 0);
            let (_, findings, _) = found(loaded, &assumed);
            let messages: Vec<_> = findings.iter().map(|one| one.message.as_str()).collect();
            let want = "FailoverRoute goes on to the same servers that failed";
            assert_eq!(messages, [want], "{gutter}");
        }
    }
}
