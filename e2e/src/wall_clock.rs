//! The adjustable wall clock of one server, by faketime.

use std::fs;
use std::path::PathBuf;

use testkit::Launch;

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// A file with the clock's offset; removed at the end.
#[derive(Debug)]
pub struct WallClock(PathBuf);

impl WallClock {
    /// A correct clock; this process must use the name only once. None if faketime is missing.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        if !fs::exists(LIBRARY).unwrap() {
            return None;
        }
        let path = std::env::temp_dir().join(format!("e2e-clock-{name}-{}", std::process::id()));
        let clock = Self(path);
        clock.set(0);
        Some(clock)
    }

    /// Makes a server read this clock. Its monotonic clock is the machine's.
    #[must_use]
    pub fn given_to(&self, launch: Launch) -> Launch {
        launch
            .preload(LIBRARY)
            .env("FAKETIME_TIMESTAMP_FILE", self.0.to_str().unwrap())
            .env("FAKETIME_NO_CACHE", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
    }

    /// Sets the clock this number of seconds ahead of the machine's.
    pub fn set(&self, ahead_secs: i64) {
        // Atomically, because the server may read at any time.
        let part = self.0.with_extension("part");
        fs::write(&part, format!("{ahead_secs:+}s\n")).unwrap();
        fs::rename(&part, &self.0).unwrap();
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
