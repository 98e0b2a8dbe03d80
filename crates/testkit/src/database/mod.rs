//! Real databases as child processes: MariaDB and PostgreSQL from Debian's packages, and MySQL,
//! each in a separate folder and on a separate port.
//!
//! Tests query them through their own command-line clients, so that a test relies on no library
//! under test.
//!
//! Relaxed is enough for the counter of folders: only the number counts.

mod mysqld;
mod postgres;
mod session;

pub use mysqld::{Brand, Mysqld};
pub use postgres::Postgres;
pub use session::Session;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A folder that is removed at the end.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(kind: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("holdall-{kind}-{}-{turn}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the database");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command to its end; panics with its output if it fails.
#[track_caller]
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}:\n{}{}",
        said(&output.stdout),
        said(&output.stderr)
    );
    said(&output.stdout)
}

/// Waits until `is_up`, while the process lives.
#[track_caller]
fn until_up(child: &mut Child, log: &Path, is_up: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_up() {
        let has_ended = child.try_wait().expect("one's own child").is_some();
        assert!(
            !has_ended && Instant::now() < end,
            "the database did not start:\n{}",
            fs::read_to_string(log).unwrap_or_default()
        );
        thread::sleep(Duration::from_millis(50));
    }
}
