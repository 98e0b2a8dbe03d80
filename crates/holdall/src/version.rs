//! `holdall version`: the program's version, and the facts for a fault report.

use std::env::consts::{ARCH, OS};

use serde_json::json;

use crate::commands::features;

/// The help of `holdall version`.
pub(crate) const HELP: &str = "\
Says what this program is: its version, commit, features and system.

Usage: holdall version [--json]

  --json  an object of version, commit, features, os, arch and libc

Examples:
  holdall version --json | jq -r .version
";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version in lines for people.
pub(crate) fn text() -> String {
    let features = features().join(" ");
    format!(
        "holdall {VERSION}\ncommit    {}\nfeatures  {features}\nsystem    {OS} {ARCH}, {}\n",
        commit().unwrap_or("unknown"),
        libc(),
    )
}

/// The version as JSON; the commit is null in a build without one.
pub(crate) fn object() -> String {
    let object = json!({
        "version": VERSION,
        "commit": commit(),
        "features": features(),
        "os": OS,
        "arch": ARCH,
        "libc": libc(),
    });
    format!("{object:#}\n")
}

fn commit() -> Option<&'static str> {
    option_env!("HOLDALL_COMMIT")
}

fn libc() -> &'static str {
    if cfg!(target_env = "musl") { "musl, static" } else { "glibc" }
}
