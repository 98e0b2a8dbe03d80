//! `holdall check FILE`.

use std::path::Path;

use serde_json::{Value, json};

use super::{STATUS_BROKEN, STATUS_GOOD, STATUS_WARNINGS, Said, Words};
use crate::lint::lint;
use crate::{Diagnostic, Files, Params, load_file};

const HELP: &str = "\
Checks a router configuration: mcrouter's language, or twemproxy's YAML.

Usage: holdall check FILE.. [--json] [--route-prefix /REGION/CLUSTER/]

Each finding is one line: file:line:column: error or warning: what (what to do); with --json an object of file, line, column,
severity, message and hint, in an array.

Examples:
  holdall check router.json
  holdall check --json nutcracker.yml

Exit status: 0 nothing found, 1 warnings only, 2 errors, 64 wrong arguments.
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
    let params = words.flag("--route-prefix").map_or_else(Params::default, Params::new);
    let (mut said, mut objects) = (Said::default(), Vec::new());
    for file in &words.words {
        let (files, findings, status) = one(Path::new(file), &params);
        said.status = said.status.max(status);
        for finding in findings {
            if words.json {
                objects.push(object(&finding, &files));
            } else {
                said.out.push_str(&finding.render(&files));
                said.out.push('\n');
            }
        }
    }
    if words.json {
        said.out = format!("{:#}\n", Value::from(objects));
    }
    said
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

fn one(path: &Path, params: &Params) -> (Files, Vec<Diagnostic>, u8) {
    match load_file(path, params) {
        Err(rejected) => (rejected.files, rejected.findings, STATUS_BROKEN),
        Ok(loaded) => {
            let mut findings = loaded.warnings;
            findings.extend(lint(&loaded.config));
            let status = if findings.is_empty() { STATUS_GOOD } else { STATUS_WARNINGS };
            (loaded.config.files, findings, status)
        }
    }
}
