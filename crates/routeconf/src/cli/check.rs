//! `holdall check FILE`.

use std::path::Path;

use super::{STATUS_BROKEN, STATUS_GOOD, STATUS_WARNINGS, Said, Words};
use crate::lint::lint;
use crate::{Params, load_file};

const HELP: &str = "\
Checks a router configuration: mcrouter's language, or twemproxy's YAML.

Usage: holdall check FILE.. [--route-prefix /REGION/CLUSTER/]

Each finding is one line: file:line:column: error or warning: what (what to do).

Exit status: 0 nothing found, 1 warnings only, 2 errors, 64 wrong arguments.
";

/// Checks the files that the arguments name.
#[must_use]
pub fn check(arguments: impl Iterator<Item = String>) -> Said {
    let words = match Words::new("check", arguments, &["--route-prefix"]) {
        Ok(words) => words,
        Err(said) => return said,
    };
    if words.help {
        return Said::help(HELP);
    }
    if words.words.is_empty() {
        return Said::usage("check", "a file is missing");
    }
    let params = words.flag("--route-prefix").map_or_else(Params::default, Params::new);
    let mut said = Said::default();
    for file in &words.words {
        one(Path::new(file), &params, &mut said);
    }
    said
}

fn one(path: &Path, params: &Params, said: &mut Said) {
    let (files, findings, status) = match load_file(path, params) {
        Err(rejected) => (rejected.files, rejected.findings, STATUS_BROKEN),
        Ok(loaded) => {
            let mut findings = loaded.warnings;
            findings.extend(lint(&loaded.config));
            let status = if findings.is_empty() { STATUS_GOOD } else { STATUS_WARNINGS };
            (loaded.config.files, findings, status)
        }
    };
    for finding in findings {
        said.out.push_str(&finding.render(&files));
        said.out.push('\n');
    }
    said.status = said.status.max(status);
}
