//! The record of files that a running process reads again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::family::Kind;
use crate::page::Page;

/// The last reading of a group of files.
#[derive(Debug)]
pub struct LastReload {
    /// 1, or 0 if they could not be used and nothing changed.
    successful: AtomicU64,
    /// Unix time of the last success, in seconds.
    succeeded_at: AtomicU64,
}

impl Default for LastReload {
    /// They have just been read, and could be used.
    fn default() -> Self {
        Self { successful: 1.into(), succeeded_at: unix_secs().into() }
    }
}

impl LastReload {
    /// Notes that they were read again.
    pub fn note(&self, is_successful: bool) {
        // Relaxed, here and below: numbers for people.
        self.successful.store(is_successful.into(), Ordering::Relaxed);
        if is_successful {
            self.succeeded_at.store(unix_secs(), Ordering::Relaxed);
        }
    }
}

/// Writes the result of each part's last reading, under Prometheus's names for it.
pub fn reloads(page: &mut Page, parts: &[(&str, &LastReload)]) {
    type Number = fn(&LastReload) -> &AtomicU64;
    let families: [(&str, &str, Number); 2] = [
        (
            "config_last_reload_successful",
            "1 if the files could be used when they were read last.",
            |part| &part.successful,
        ),
        (
            "config_last_reload_success_timestamp_seconds",
            "Unix time at which the files could be used last.",
            |part| &part.succeeded_at,
        ),
    ];
    for (name, help, number) in families {
        page.family(name, Kind::Gauge, help);
        for (part, last) in parts {
            page.sample(name, &[("part", part)], number(last).load(Ordering::Relaxed));
        }
    }
}

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_reload_shows_until_one_succeeds() {
        let (users, other) = (LastReload::default(), LastReload::default());
        let shown = || {
            let mut page = Page::new("holdall_");
            reloads(&mut page, &[("users", &users), ("other", &other)]);
            let text = page.into_text();
            assert!(text.contains("_successful{part=\"other\"} 1\n"), "{text}");
            text.contains("holdall_config_last_reload_successful{part=\"users\"} 1\n")
        };
        assert!(shown());
        users.note(false);
        assert!(!shown());
        users.note(true);
        assert!(shown());
    }
}
