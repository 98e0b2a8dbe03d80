//! Recovery after troubles: a knocked-out server is probed in time, and not too often.

use std::collections::BTreeSet;
use std::time::Duration;

use certs::ClientOptions;
use testkit::Rng;

use super::shape::Shape;
use super::workers::World;
use simulation::handshake::{self, Rules};
use simulation::{Net, Server, Trouble, now_us, system};
use upstream::{Command, Failure, Settings, Tls, micros};

/// Asserts full recovery: two probe intervals after the last trouble, knocked-out servers are back.
/// Once their requests have timed out as well, the troubles have no further effect.
pub(super) fn assert_all_is_well(world: &mut World, before: &KeysByServer) {
    let mut missed = world.knocked_out();
    system::with(Net::heal);
    let lag_us = world.shape.lag_us as u64 * 4;
    // A handshake or a login that precedes a request has its own time limit.
    let awaits_login = world.shape.rules.tls.is_some() || world.shape.rules.has_login;
    let opening = if awaits_login { world.shape.time_to_open() } else { Duration::ZERO };
    let until_us = now_us() + micros(world.shape.settings.probe_max * 2 + opening) + lag_us;
    while !missed.is_empty() {
        assert!(now_us() < until_us, "not back in time: {missed:?}");
        world.turn(until_us, |_| {});
        // Earlier requests may knock a recovered server out again.
        let now_out = world.knocked_out();
        missed.retain(|one| now_out.contains(one));
    }
    let Settings { timeout, connect_retries, probe_max, .. } = world.shape.settings;
    let connect_timeout = world.shape.time_to_open() * (1 + connect_retries);
    let lag = Duration::from_micros(world.shape.lag_us as u64) * 4;
    // A probe may be a tenth late, and must wait for the timeouts before it; packets take up to a
    // millisecond.
    let held = Duration::from_millis(2);
    world.rest(held + timeout.max(connect_timeout) + probe_max * 22 / 10 + lag);
    if let Some((_, retry)) = world.shape.ejects {
        world.rest(retry);
    }
    if world.shape.window.is_some() {
        world.rest(timeout * 100);
    }
    assert_eq!(world.open(), 0, "calls without an answer");
    let tko = world.knocked_out();
    assert!(tko.is_empty(), "still knocked out: {tko:?}");
    assert_eq!(homes(world), *before, "keys are elsewhere than before");
}

/// The keys requested from each server.
pub(super) type KeysByServer = Vec<BTreeSet<Vec<u8>>>;

/// Every worker requests the same keys, and gets answers, as long as nothing is late, including the
/// workers.
pub(super) fn homes(world: &mut World) -> KeysByServer {
    let asked = |one: &mut Server| std::mem::take(&mut one.asked);
    let lag_us = std::mem::replace(&mut world.clock.lag_us, 0);
    let failed = world.failed();
    system::with(|net| net.servers_mut().for_each(|one| drop(asked(one))));
    for worker in 0..world.workers.len() {
        for key in 0..8 {
            world.ask(worker, Command::Get, format!("k:home-{key}").as_bytes());
            world.turn(now_us(), |_| {});
        }
    }
    world.rest(world.shape.settings.timeout + world.shape.settings.connect_timeout);
    world.clock.lag_us = lag_us;
    assert_eq!(world.open(), 0, "calls without an answer");
    let failures: Vec<_> = world.workers.iter().map(|one| one.calls.last_failure).collect();
    assert_eq!(world.failed(), failed, "all is well, but: {failures:?}");
    let mut homes: KeysByServer = system::with(|net| net.servers_mut().map(asked).collect());
    // Answers to abandoned requests may come late.
    homes.iter_mut().for_each(|keys| keys.retain(|key| key.starts_with(b"k:home")));
    homes
}

/// One server and one worker on a quiet machine, with one key. It probes every ten milliseconds,
/// and an answer may take ten times as long.
fn alone(connect_timeout: Duration) -> World {
    let mut rng = Rng::new(1);
    let settings = Settings {
        timeout: Duration::from_millis(100),
        connect_timeout,
        timeouts_until_tko: 1,
        probe_initial: Duration::from_millis(10),
        probe_max: Duration::from_millis(10),
        ..Settings::default()
    };
    let drawn = Shape::draw(&mut rng);
    let (ops, keys) = (vec![Command::Get], 1);
    let plain =
        Shape { servers: 1, workers: 1, is_binary: false, has_udp: false, ops, keys, ..drawn };
    let (rules, ejects) = (Rules::default(), None);
    let plain = Shape { rules, ejects, ..plain };
    let shape = Shape { fails_over: false, window: None, settings, lag_us: 0, ..plain };
    World::of(shape, rng, 1)
}

impl World {
    /// Returns the microseconds until a get is answered. A failed get is repeated at once, for at
    /// most `most_us`.
    fn found_after_us(&mut self, most_us: u64) -> Option<u64> {
        let (begin_us, answered) = (now_us(), self.answered());
        while self.answered() == answered {
            if now_us() > begin_us + most_us {
                return None;
            }
            self.turn(now_us() + 1000, |world| {
                if world.open() == 0 {
                    world.ask(0, Command::Get, b"k:1");
                }
            });
        }
        Some(now_us() - begin_us)
    }
}

/// A lack of descriptors on this host says nothing about the server, which other workers may use.
#[test]
fn a_lack_of_descriptors_knocks_out_no_server() {
    let mut world = alone(Duration::from_millis(100));
    system::with(|net| net.begin(0, Trouble::NoSockets, 30_000));
    assert_eq!(world.found_after_us(30_000), None);
    assert_eq!(world.workers[0].calls.last_failure, Some(Failure::LocalError));
    assert_eq!(world.registry.report()[0].tko_count, 0);
    system::with(Net::heal);
    let failed = world.failed();
    assert!(world.found_after_us(100_000).is_some());
    assert_eq!(world.failed(), failed, "the first get is answered");
}

/// The system resends after a second; without probes, the connection would take as long.
#[test]
fn a_lost_connect_packet_delays_by_one_probe_interval() {
    let mut world = alone(Duration::from_millis(900));
    system::with(|net| net.begin(0, Trouble::Drops, 30_000));
    assert_eq!(world.found_after_us(30_000), None);
    system::with(Net::heal);
    let took_us = world.found_after_us(u64::MAX / 2);
    assert!(took_us.is_some_and(|us| us < 15_000), "{took_us:?}");
    // No server was out: the first request has its answer.
    assert_eq!(world.failed(), 0);
    assert_eq!(world.registry.report()[0].tko_count, 0);
}

#[test]
fn a_knocked_out_server_returns_within_two_probe_intervals() {
    let mut world = alone(Duration::from_millis(25));
    system::with(|net| net.begin(0, Trouble::Drops, 2_000_000));
    assert_eq!(world.found_after_us(100_000), None);
    let before = system::with(|net| net.dials());
    assert_eq!(world.found_after_us(1_000_000), None);
    let dials = system::with(|net| net.dials()) - before;
    assert!((80..=101).contains(&dials), "{dials} connections in 100 intervals");
    system::with(Net::heal);
    let took_us = world.found_after_us(u64::MAX / 2);
    assert!(took_us.is_some_and(|us| us <= 20_000), "{took_us:?}");
}

/// Other servers have the keys of a failed server until it is tried again. Only the tries fail.
#[test]
fn an_ejected_server_fails_only_the_retries() {
    const TRIES: u32 = 2;
    let quiet = alone(Duration::from_millis(100)).shape;
    let ejects = Some((TRIES, Duration::from_millis(50)));
    let mut world = World::of(Shape { servers: 3, ejects, ..quiet }, Rng::new(1), 1);
    let before = homes(&mut world);
    assert!(before.iter().all(|keys| !keys.is_empty()), "{before:?}");
    system::with(|net| net.begin(0, Trouble::Dead, 1_000_000));
    for call in 0..1000 {
        world.ask(0, Command::Get, format!("k:{}", call % 8).as_bytes());
        world.rest(Duration::from_millis(1));
    }
    let (answered, failed) = (world.answered(), world.failed());
    // Fifty milliseconds, and then as long as the same number of requests for its keys takes.
    assert!((u64::from(TRIES)..=u64::from(TRIES) * 21).contains(&failed), "{failed} failed");
    assert!(answered > 900, "{answered} answered");
    assert_all_is_well(&mut world, &before);
}

/// A sent request may have been executed, so a failover that covers only refused connections must
/// not repeat it.
#[test]
fn a_corrupt_tls_record_is_not_a_refused_connection() {
    let quiet = alone(Duration::from_millis(100)).shape;
    let mut rng = Rng::new(1);
    let rules = Rules { tls: Some(handshake::tls(&mut rng)), has_login: false };
    let tls = Some(Tls::open(ClientOptions::default()).expect("no files"));
    let settings = Settings { tls, ..quiet.settings.clone() };
    let mut world = World::of(Shape { rules, settings, ..quiet }, rng, 1);
    assert!(world.found_after_us(100_000).is_some());
    system::with(|net| net.servers_mut().for_each(|one| one.spoils = true));
    world.ask(0, Command::Incr, b"k:1");
    world.rest(Duration::from_millis(90));
    assert_eq!(world.workers[0].calls.last_failure, Some(Failure::RemoteError));
}

/// A delay longer than the probe interval is allowed.
#[test]
fn a_distant_server_also_comes_back() {
    let mut world = alone(Duration::from_millis(100));
    system::with(|net| net.move_away(0, 20_000));
    system::with(|net| net.begin(0, Trouble::Dead, 300_000));
    assert_eq!(world.found_after_us(300_000), None);
    system::with(Net::heal);
    // Two round trips, of the connection and of the request, twice: for the probe, and for the get.
    let took_us = world.found_after_us(u64::MAX / 2);
    assert!(took_us.is_some_and(|us| us < 20_000 + 4 * 41_000), "{took_us:?}");
    let failed = world.failed();
    assert!((0..10).all(|_| world.found_after_us(100_000).is_some()));
    assert_eq!(world.failed(), failed);
}
