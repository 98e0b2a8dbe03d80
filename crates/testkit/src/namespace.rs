//! Tests in separate namespaces: networks, mounts.

use std::env;
use std::process::{Command, Stdio};

/// Set within, to the name of the test.
const WITHIN: &str = "TEST_IN_NAMESPACES";

/// Runs only the test of this name again in new namespaces, where its user is root. `kinds` are
/// flags of `unshare`, such as `--net`. Returns `true` within, where the test continues; `false`
/// outside, once the other run has passed.
///
/// The name is the full one, with its modules.
#[must_use]
#[allow(clippy::print_stdout, reason = "it belongs to the output of the test")]
pub fn is_entered(test: &str, kinds: &[&str]) -> bool {
    if env::var(WITHIN).is_ok_and(|entered| entered == test) {
        return true;
    }
    let mut inner = Command::new("unshare");
    inner.arg("--map-root-user").args(kinds).arg(env::current_exe().unwrap());
    inner.args(["--exact", test, "--nocapture"]).env(WITHIN, test).stderr(Stdio::inherit());
    let output = inner.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    // A run without a test, after a change of its name, would succeed.
    let has_passed = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(has_passed, "{test} has not passed in its namespaces");
    false
}
