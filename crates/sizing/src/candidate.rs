//! A tier of one kind of server: the servers that it needs, and the constraint that binds.

use serde::Serialize;
use store::StoreError;

use crate::input::Platform;
use crate::loss::Loss;
use crate::money::Money;
use crate::tier::Tier;
use crate::wire::{Requests, keys_of_a_part};

/// Maximum resident memory of a server over its limit `-m` (docs/promises.md): a share, and bytes.
const RESIDENT_FACTOR: f64 = 1.03;
const RESIDENT_EXTRA: f64 = 16.0 * 1024.0 * 1024.0;

/// Share of a cluster's servers that the gutter has, about a hundredth (*Scaling Memcache at
/// Facebook*, section 3.3).
const GUTTER_SHARE: f64 = 0.01;

/// Threads of a server that is started without `-t`.
const DEFAULT_THREADS: u32 = 4;

/// A maximum number of servers, beyond any plan.
const SERVERS_MAX: f64 = 10_000_000.0;

/// A reason for the number of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Constraint {
    /// Requests per second under the SLA.
    Cpu,
    /// The network interface.
    Nic,
    /// Memory for items.
    Memory,
    /// The share of the items on one server.
    Loss,
    /// Copies of the hottest key, each on a separate server.
    #[serde(rename = "hot key")]
    HotKey,
}

impl Constraint {
    /// The displayed name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Nic => "NIC",
            Self::Memory => "memory",
            Self::Loss => "loss",
            Self::HotKey => "hot key",
        }
    }
}

/// The tier made of one kind of server.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// The kind.
    pub platform: Platform,
    /// Servers, spares among them.
    pub servers: f64,
    /// The constraint that needs the most servers.
    pub binds: Constraint,
    /// Servers that each constraint needs by itself.
    pub needs: Vec<(Constraint, f64)>,
    /// Memory for items on each server, in bytes.
    pub memory_bytes: f64,
    /// Items that fit into all servers, in this build; `None` if the servers prefer small items to
    /// large ones, in an unknown mixture.
    pub items: Option<f64>,
    /// Bytes of items that fit into all servers: headers, keys and values.
    pub item_bytes: f64,
    /// Gets per second of all servers under the SLA, when the server with the hottest key, or its
    /// interface, is fully used.
    pub gets_max: f64,
    /// `-m` of each server, in bytes: memory for items and for samples.
    pub limit_bytes: f64,
    /// `-t` of each server.
    pub threads: Option<u32>,
    /// Servers that must hold copies of the hottest key.
    pub hot_key_copies: f64,
    /// Servers of the gutter.
    pub gutter: f64,
    /// Use of each server at the peak, 0 to 1: of its requests, its interface, its memory.
    pub used: Used,
    /// Servers beyond those that would suffice at full use.
    pub headroom: f64,
    /// The loss of one server.
    pub loss: Loss,
    /// Watts of all servers, if known.
    pub watts: Option<f64>,
    /// Costs, if a price is known.
    pub money: Option<Money>,
}

/// Shares of a server's capacity, 0 to 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Used {
    /// Of its gets per second.
    pub cpu: f64,
    /// Of its interface.
    pub nic: f64,
    /// Of its memory for items.
    pub memory: f64,
}

impl Tier<'_> {
    pub(crate) fn candidate(&self, platform: &Platform) -> Result<Candidate, String> {
        let wrong = |why: &str| Err(format!("platform '{}': {why}", platform.name));
        let room = (platform.memory.0 - platform.base_memory.0) / RESIDENT_FACTOR - RESIDENT_EXTRA;
        if room <= 0.0 {
            return wrong("memory: nothing is left for items");
        }
        let limits = self.limits;
        let cpu = self.demand.peak / platform.capacity();
        let threads = platform.cores.unwrap_or(DEFAULT_THREADS);
        let memory = self.hits.memory_bytes / (room - samples(room, threads));
        let few = cpu.max(memory).ceil().max(1.0);
        if few > SERVERS_MAX {
            return wrong("more than ten million would be needed");
        }
        let hot_key_copies =
            whole(self.demand.hot_key / (platform.hot_capacity() * limits.utilization));
        let needs = vec![
            (Constraint::Cpu, whole(cpu / limits.utilization)),
            (Constraint::Nic, self.for_the_nic(platform, limits.utilization)),
            (Constraint::Memory, whole(memory)),
            (Constraint::Loss, whole(1.0 / limits.max_loss)),
            (Constraint::HotKey, hot_key_copies),
        ];
        let (binds, most) = needs
            .iter()
            .fold((Constraint::Cpu, 0.0), |most, need| if need.1 > most.1 { *need } else { most });
        let servers = most + limits.spares;
        let of_hot_key = whole(self.demand.hot_key / platform.hot_capacity());
        let bare = few.max(self.for_the_nic(platform, 1.0)).max(of_hot_key);
        let watts = platform.watts.map(|watts| watts * servers);
        let (items, item_bytes) = self.room(servers).map_err(|error| error.to_string())?;
        Ok(Candidate {
            platform: platform.clone(),
            servers,
            binds,
            needs,
            memory_bytes: self.hits.memory_bytes / servers,
            items: (!self.kept.weighs_size).then_some(items),
            item_bytes,
            gets_max: self.gets_max(platform, servers, hot_key_copies),
            limit_bytes: limit(self.hits.memory_bytes / servers, threads),
            threads: platform.cores,
            hot_key_copies,
            gutter: whole(servers * GUTTER_SHARE),
            used: Used {
                cpu: cpu / servers,
                nic: self.nic_used(platform, servers),
                memory: memory / servers,
            },
            headroom: servers - bare,
            loss: self.loss_of_one(servers, platform.capacity()),
            watts,
            money: Money::of(platform, servers, servers - bare, self.input.cost),
        })
    }

    /// Items, and their bytes, that fit into this number of servers. By the sizes alone, each of
    /// them may waste more of its memory than a larger one.
    fn room(&self, servers: f64) -> Result<(f64, f64), StoreError> {
        let memory = self.hits.memory_bytes;
        let of_one = self.sizes.item_bytes(whole_bytes(memory / servers))?;
        let items = memory / of_one;
        let Some((present, kept)) = self.kept.memory else {
            return Ok((items, items * self.sizes.stored_bytes()));
        };
        // A running server knows the density of its items better. A smaller one keeps fewer in the
        // same memory.
        let density = kept / present * self.sizes.item_bytes(whole_bytes(present))? / of_one;
        Ok((items, memory * density))
    }

    /// Gets per second at which the busiest server reaches its limit.
    fn gets_max(&self, platform: &Platform, servers: f64, hot_key_copies: f64) -> f64 {
        let hot = self.input.load.hot_key_share;
        let (random, hot) = ((1.0 - hot) / servers, hot / hot_key_copies.min(servers));
        // Each get takes its part of a second, and one of the hottest key another part.
        let by_cpu = 1.0 / (random / platform.capacity() + hot / platform.hot_capacity());
        let by_nic = self.demand.peak / (self.nic_used(platform, servers) * servers);
        by_cpu.min(by_nic / (random + hot))
    }

    fn nic_used(&self, platform: &Platform, servers: f64) -> f64 {
        let requests = Requests {
            gets: self.demand.peak / servers,
            keys: keys_of_a_part(self.input.load.gets_per_request, servers),
            hit_ratio: self.hits.ratio,
            key_bytes: self.items.key_bytes,
            value_bytes: self.items.value_bytes,
        };
        requests.bits_per_second() / platform.nic.0
    }

    /// The minimum number of servers whose interfaces are used to at most `utilization`. More
    /// servers split multigets further, so the sum of all traffic rises a little with them.
    fn for_the_nic(&self, platform: &Platform, utilization: f64) -> f64 {
        let mut servers: f64 = 1.0;
        while servers < SERVERS_MAX {
            let used = self.nic_used(platform, servers);
            if used <= utilization {
                break;
            }
            servers = (servers * used / utilization).ceil().max(servers + 1.0);
        }
        servers
    }
}

/// Memory that a server with this limit keeps for samples, as the server itself computes it.
fn samples(limit: f64, threads: u32) -> f64 {
    let threads = threads as usize;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    let config = sampling::Config::for_memory(limit.max(0.0) as u64, threads, true);
    config.bytes_max(threads) as f64
}

/// The limit that leaves this much memory for items.
fn limit(items: f64, threads: u32) -> f64 {
    // Samples grow with the limit, in steps and by a small part of it.
    (0..4).fold(items, |limit, _| items + samples(limit, threads))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
fn whole_bytes(bytes: f64) -> u64 {
    bytes as u64
}

/// At least one whole server; a rounding error adds none.
fn whole(servers: f64) -> f64 {
    (servers - 1e-9).ceil().max(1.0)
}
