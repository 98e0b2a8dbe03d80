//! TLS, logins and rights of the server against real clients and hostile ones, and the functions of
//! the confined process.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

mod confined;
mod damaged;
mod handover;
mod hostile;
mod login;
mod namespaces;
mod onward;
mod packets;
mod proxied;
mod signals;
mod tls;
mod unauthenticated;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::certificates::{self, Folder, output};

/// A tool that `cargo xtask install` has put below `E2E_TOOLS`.
fn tool(name: &str) -> PathBuf {
    let tools = std::env::var_os("E2E_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/e2e"), PathBuf::from);
    let path = tools.join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask install`", path.display());
    path
}

/// Runs a script of `e2e/clients/python`; its last line must report the number of passed checks.
fn python(script: &str, words: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python").join(script);
    let words = std::iter::once(script.as_os_str()).chain(words.iter().map(OsStr::new));
    let text = output(Command::new(tool("venv/bin/python")).args(words));
    assert!(text.trim_end().ends_with("checks passed"), "{text}");
}
