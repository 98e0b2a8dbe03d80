//! Passes the commit it is built from to the crate, so that results can name it.

use std::path::Path;
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("cargo::rerun-if-changed=build.rs");
    // Outside of the project's own tree, a repository found here is another project's.
    if !root.join(".git").exists() {
        return;
    }
    let git = |words: &[&str]| -> Option<String> {
        let output = Command::new("git").args(words).current_dir(&root).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // The log of HEAD grows with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=HOLDALL_COMMIT={commit}");
    }
}
