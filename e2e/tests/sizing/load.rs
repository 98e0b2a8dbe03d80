//! Loads of known kinds, and tiers planned for them.

use std::fs;
use std::path::Path;
use std::process::Command;

use bench::hitrate::presets::{Kind, Preset};
use bench::hitrate::{Source, Workload};
use serde_json::Value;
use testkit::server::holdall_path;

/// Approximate number of 300-byte items per MiB.
const ITEMS_OF_A_MIB: u64 = 3000;

/// The number of requests for each key.
const REQUESTS_OF_A_KEY: u64 = 8;

/// A load.
pub(crate) struct Load {
    /// Its name in the table.
    pub(crate) name: &'static str,
    servers: usize,
    preset: Preset,
}

/// A tier with the promises that `holdall plan size` makes for it.
pub(crate) struct Plan {
    /// The promised hit ratio.
    pub(crate) hit_ratio: f64,
    /// The promised number of items that fit, if there is one.
    pub(crate) items: Option<f64>,
    /// The promised bytes of items that fit.
    pub(crate) item_bytes: f64,
    /// The number of servers.
    pub(crate) servers: usize,
    /// `-m` of each server, in MiB.
    pub(crate) memory_mib: u64,
}

/// The output of `holdall plan size`.
struct Sized {
    hit_ratio: f64,
    items: Option<f64>,
    item_bytes: f64,
    /// `-m` of each server, in bytes.
    limit: f64,
}

impl Load {
    /// A load over about `data_mib` MiB of items, planned for `servers` servers.
    pub(crate) const fn new(name: &'static str, kind: Kind, data_mib: u64, servers: usize) -> Self {
        let keys = data_mib * ITEMS_OF_A_MIB;
        let requests = keys * REQUESTS_OF_A_KEY;
        Self { name, servers, preset: Preset { kind, keys, requests, seed: 1 } }
    }

    /// Its requests, which all count, as do those of a curve from the start of its server.
    pub(crate) const fn workload(&self) -> Workload {
        Workload { source: Source::Preset(self.preset), limit: None, warm_up: 0 }
    }

    /// Plans a tier of about `memory_mib` for it, from a server's statistics in `folder`.
    pub(crate) fn plan(&self, folder: &Path, memory_mib: u64) -> Plan {
        let mib = f64::from(1 << 20);
        let about = memory_mib as f64 * mib;
        let limit = self.sized(folder, about).limit;
        // `-m` is a whole number: the rounding is added to the memory for items.
        let more = (limit / mib).ceil() * mib - limit;
        let sized = self.sized(folder, about + more * self.servers as f64);
        let memory_mib = (sized.limit / mib).round();
        assert!((sized.limit / mib - memory_mib).abs() < 0.01, "{}: {}", self.name, sized.limit);
        Plan {
            hit_ratio: sized.hit_ratio,
            items: sized.items,
            item_bytes: sized.item_bytes,
            servers: self.servers,
            memory_mib: whole(memory_mib),
        }
    }

    /// The output of `holdall plan size` for a tier with `memory` bytes for items.
    fn sized(&self, folder: &Path, memory: f64) -> Sized {
        let (servers, keys) = (self.servers, self.preset.keys);
        let text = format!(
            "scenario = \"tolerant\"\n\
             max_loss = {}\n\
             [load]\n\
             gets_per_second = 50_000\n\
             [data]\n\
             items = {keys}\n\
             stats_sizes = \"slabs.txt\"\n\
             key_bytes = 16\n\
             [hits]\n\
             memory = \"{memory:.0}B\"\n\
             curve = \"mrc.txt\"\n\
             [[platform]]\n\
             name = \"this machine\"\n\
             cores = 1\n\
             gets_per_second = 400_000\n\
             memory = \"16GB\"\n\
             nic = \"10Gbit\"\n",
            1.0 / servers as f64
        );
        let sizing = size(folder, &text);
        let number = |pointer: &str| number(&sizing, pointer);
        assert_eq!(whole(number("/candidates/0/servers")), servers as u64, "{}", self.name);
        Sized {
            hit_ratio: number("/hits/ratio"),
            items: sizing.pointer("/candidates/0/items").and_then(Value::as_f64),
            item_bytes: number("/candidates/0/item_bytes"),
            limit: number("/candidates/0/limit_bytes"),
        }
    }
}

/// Runs `holdall plan size --json` for the load in `text`, which may name files in `folder`.
pub(crate) fn size(folder: &Path, text: &str) -> Value {
    let file = folder.join("load.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(holdall_path());
    let output = command.args(["plan", "size", "--json"]).arg(&file).output().unwrap();
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {problem}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A number in the output.
pub(crate) fn number(answer: &Value, pointer: &str) -> f64 {
    let number = answer.pointer(pointer).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("no {pointer} in {answer}"))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
pub(crate) fn whole(number: f64) -> u64 {
    number.round() as u64
}
