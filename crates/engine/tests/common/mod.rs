//! A store and settings of a server, for tests.

use std::sync::Arc;

use engine::{LeaseSettings, Settings};
use store::{Config, Store};

pub(crate) fn settings() -> Settings {
    Settings {
        cas_enabled: true,
        flush_enabled: true,
        started_at_unix: 1_700_000_000,
        leases: LeaseSettings::default(),
    }
}

pub(crate) fn store() -> Arc<Store> {
    Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).unwrap()
}
