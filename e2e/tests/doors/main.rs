//! The doors of the server against real clients and bad ones: TLS, logins, rights, and what the process may still do.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

mod certificates;
mod confined;
mod handover;
mod login;
mod onward;
mod tls;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of the test's own, removed at the end. The server, which may run as another user, can read it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("doors-{}-{turn}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file in one piece, and names it.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(format!("{path}.part"), text).unwrap();
        fs::rename(format!("{path}.part"), &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A tool that `cargo xtask install` has put below `E2E_TOOLS`.
fn tool(name: &str) -> PathBuf {
    let tools = std::env::var_os("E2E_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/e2e"), PathBuf::from);
    let path = tools.join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask install`", path.display());
    path
}

/// Runs one of `e2e/clients/python`; its last line must say how many checks passed.
fn python(script: &str, words: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python").join(script);
    let words = std::iter::once(script.as_os_str()).chain(words.iter().map(OsStr::new));
    let text = output(Command::new(tool("venv/bin/python")).args(words));
    assert!(text.trim_end().ends_with("checks passed"), "{text}");
}

/// What a program prints, which must succeed.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?} {}:\n{text}", output.status);
    text
}
