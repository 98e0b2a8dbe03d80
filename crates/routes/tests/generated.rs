//! No accepted configuration ends the program or leaves a request without a reply: random
//! configurations, over servers that answer, refuse, are silent or do not exist, with random
//! requests.
//!
//! `CONFIGS` and `REQUESTS` make the run longer; `SEED` and `SEEDS` repeat a part of it.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;
#[path = "generated/config.rs"]
mod config;
#[path = "generated/requests.rs"]
mod requests;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use common::{Rig, Scripted, number, patient};
use config::{Addresses, config};
use requests::Made;
use routeconf::{MemorySources, Params, ROUTE_TYPES, load};
use routes::{BigValues, Plan, TreeFlags};
use testkit::{Rng, Server};

/// Other names of routes: the parser makes the routes that they stand for.
const ALIASES: [&str; 3] = ["Pool", "PrefixPolicyRoute", "SaltedFailoverRoute"];

/// All routes that a configuration may have; the generator must include each one.
fn names() -> impl Iterator<Item = &'static str> {
    let types = ROUTE_TYPES.iter().copied().filter(|name| !ALIASES.contains(name));
    // A child that is an address has no type.
    types.chain(["DestinationRoute"])
}

/// Some flags change every tree.
fn flags(rng: &mut Rng) -> TreeFlags {
    let big_values = BigValues { split_bytes: 10, batch: 1, hides_flag: true };
    TreeFlags {
        send_invalid_route_to_default: rng.one_in(4),
        allow_only_gets: rng.one_in(10),
        big_values: rng.one_in(10).then_some(big_values),
        enable_logging_route: rng.one_in(10),
        group_remote_errors: rng.one_in(10),
        disable_shard_split_route: rng.one_in(10),
        target_max_inflight: u32::from(rng.one_in(10)),
        ..TreeFlags::default()
    }
}

/// The requests of one configuration, some of them concurrent; each gets one reply.
fn play(rng: &mut Rng, plan: &Plan, requests: usize) {
    let mut rig = Rig::over(|upstream| plan.tree(upstream));
    let mut left = requests;
    while left > 0 {
        let now = (1 + rng.below(25)).min(left);
        left -= now;
        let made: Vec<_> = (0..now).map(|_| Made::draw(rng)).collect();
        let tickets: Vec<_> = made.iter().map(|one| rig.submit(&one.request())).collect();
        for ticket in &tickets {
            rig.reply(*ticket);
        }
        assert!(tickets.iter().all(|ticket| !rig.has_reply(*ticket)), "a second reply");
    }
}

#[test]
fn every_request_gets_one_reply_in_any_configuration() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    // One answer to each read: later requests in it get none.
    let refusing = Scripted::new(|_| Some("ERROR\r\n".to_owned()));
    // The system accepts its connections, and no program reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = Addresses {
        alive: servers.each_ref().map(|server| server.addr().to_string()),
        refusing: refusing.address.to_string(),
        silent: silent.local_addr().unwrap().to_string(),
    };
    let requests = number("REQUESTS", 20);
    let (mut accepted, mut refused, mut seen) = (0_u64, 0_u64, BTreeSet::new());
    let first = number("SEED", 1);
    for seed in first..first + number("CONFIGS", 300) {
        let mut rng = Rng::new(seed as u64);
        let text = config(&mut rng, &addresses);
        if std::env::var_os("SHOW").is_some() {
            println!("seed {seed}: {text}");
        }
        let mut nothing = MemorySources(std::iter::empty().collect());
        let loaded = load("test.json", &text, &Params::default(), &mut nothing);
        let Ok(loaded) = loaded else {
            refused += 1;
            continue;
        };
        accepted += 1;
        seen.extend(loaded.config.handles.iter().map(|handle| handle.route.name()));
        let settings = upstream::Settings { probe_max: Duration::from_millis(200), ..patient() };
        let plan = Plan::new(loaded.config, settings, flags(&mut rng)).unwrap();
        play(&mut rng, &plan, requests);
    }
    println!("{accepted} configurations, {refused} refused, {requests} requests each");
    assert!(accepted > refused, "{accepted} accepted, {refused} refused");
    let left_out: Vec<_> = names().filter(|name| !seen.contains(name)).collect();
    assert!(accepted < 100 || left_out.is_empty(), "never made: {left_out:?}");
}
