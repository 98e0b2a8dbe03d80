//! The library in simulated time: callers that wait, are late, or give up at any await. See the
//! crate `simulation`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use testkit::{Rng, seeds};

use crate::builder::Builder;
use crate::client::{Client, Inner};
use crate::codec::{Codec, Compression};
use crate::driver::Driver;
use crate::driver_guard::DriverGuard;
use crate::driver_handoff::{DriverKind, Next};
use crate::error::Error;
use crate::inbox::{Inbox, Limits};
use crate::value::Value;
use discovery::Discovery;
use routes::Core;
use simulation::{Clock, Net, address, is_of, mark, now_us, system, unit};
use upstream::{Registry, Upstream};

/// The outcome of an awaited call.
type Ended = Result<(), Error>;

/// An ongoing call, with the times at which it must have ended, and at which its caller gives it
/// up.
struct Call {
    future: Pin<Box<dyn Future<Output = Ended>>>,
    due_us: Option<u64>,
    gives_up_us: u64,
}

/// The inbox's own thread.
enum Background {
    Drives(DriverGuard),
    Ended,
    /// Until a time, its eventfd, or, if it watches, a server's data.
    Sleeps(Option<Instant>, bool),
}

struct World {
    clock: Clock,
    client: Option<Client>,
    inbox: Arc<Inbox>,
    background: Background,
    /// A caller that drives.
    caller_driver: Option<DriverGuard>,
    led: u64,
    calls: Vec<Call>,
    next: u64,
    timeout: Duration,
    answered: u64,
    failed: u64,
    given_up: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let ms = |count: usize| Duration::from_millis(count as u64);
        let servers = 1 + rng.below(3);
        system::enter(Net::new(rng.next_u64(), servers));
        let timeout = ms(10 + rng.below(40));
        let names = (0..servers).map(|number| address(number).to_string());
        let builder = Builder::default().servers(names).timeout(timeout).connect_timeout(timeout);
        let builder = if rng.one_in(3) { builder.binary() } else { builder };
        let planned = builder.plan(None, &Discovery::default()).expect("a plan");
        let (registry, now) = (Registry::default(), system::now());
        let upstream = Upstream::new(0, registry.clone(), now).expect("a poller");
        let core = Core::new(upstream, 7, seed, |upstream| planned.plan.tree(upstream));
        let limits = Limits { pending_max: 100, inbox_bytes_max: 1 << 20 };
        let inbox = Inbox::new(limits).expect("a descriptor");
        inbox.set_driver(Box::new(Driver::new(core.expect("a core"))));
        let codec = Codec {
            compression: Compression::Off,
            threshold_bytes: usize::MAX,
            value_bytes_max: 1 << 20,
        };
        let inboxes = vec![Arc::clone(&inbox)];
        let inner = Arc::new(Inner::new(inboxes, Vec::new(), registry, codec, None));
        Self {
            clock: Clock::new(rng.next_u64(), *rng.pick(&[0, 50, 3000])),
            client: Some(Client::of(inner, None)),
            inbox,
            background: Background::Sleeps(Some(system::now()), false),
            caller_driver: None,
            led: 0,
            calls: Vec::new(),
            next: 1,
            timeout,
            answered: 0,
            failed: 0,
            given_up: 0,
        }
    }

    /// Advances the time to at most `until_us`; the driving thread and every caller have a turn.
    /// Returns true if the inbox has ended.
    fn turn(&mut self, until_us: u64) -> bool {
        let until = system::now() + Duration::from_micros(until_us.saturating_sub(now_us()));
        if self.caller_driver.is_none() && self.clock.rng.one_in(3) {
            let driver = self.inbox.take_driver();
            let guard = |driver| DriverGuard::new(driver, &self.inbox, DriverKind::Caller);
            self.caller_driver = driver.map(guard);
            self.led += u64::from(self.caller_driver.is_some());
        }
        let gives_up = self.calls.iter().map(|call| call.gives_up_us).min();
        let gives_up = gives_up
            .map(|at_us| system::now() + Duration::from_micros(at_us.saturating_sub(now_us())));
        let (wakes, leads) = (self.background_wakes(), self.caller_wakes());
        self.clock.pass([wakes, leads, gives_up, Some(until)]);
        self.drive_as_caller();
        self.keep();
        self.poll();
        matches!(self.background, Background::Ended)
    }

    fn caller_wakes(&mut self) -> Option<Instant> {
        self.caller_driver.as_mut()?.wakes()
    }

    fn background_wakes(&mut self) -> Option<Instant> {
        let is_notified = self.inbox.is_notified(DriverKind::Background);
        match &mut self.background {
            Background::Drives(guard) => guard.wakes(),
            Background::Ended => None,
            Background::Sleeps(..) if is_notified => Some(system::now()),
            Background::Sleeps(until, _) => {
                let is_over = until.is_some_and(|until| until <= system::now());
                let is_forgotten =
                    !is_over && self.caller_driver.is_none() && self.inbox.has_work();
                assert!(!is_forgotten, "there is work, and everybody sleeps");
                *until
            }
        }
    }

    /// Drives as the current caller, which may leave.
    fn drive_as_caller(&mut self) {
        let Some(mut guard) = self.caller_driver.take() else { return };
        self.inbox.clear_notify(DriverKind::Caller);
        guard.turn();
        if self.clock.rng.one_in(2) {
            guard.leave();
        } else {
            self.caller_driver = Some(guard);
        }
    }

    /// The same as the background driver's loop.
    fn keep(&mut self) {
        let has_news = match &self.background {
            Background::Sleeps(until, watches) => {
                let is_notified = self.inbox.is_notified(DriverKind::Background);
                let is_over = until.is_some_and(|until| until <= system::now());
                let has_news = *watches && self.clock.rng.one_in(2);
                if !(is_notified || is_over || has_news) {
                    return;
                }
                has_news
            }
            Background::Drives(_) | Background::Ended => false,
        };
        self.inbox.clear_notify(DriverKind::Background);
        if let Background::Drives(guard) = &mut self.background {
            if guard.turn() {
                self.background = Background::Ended;
                return;
            }
            if !guard.is_idle() {
                return;
            }
        }
        if let Background::Drives(guard) =
            std::mem::replace(&mut self.background, Background::Ended)
        {
            guard.leave();
        }
        self.background = match self.inbox.next(has_news) {
            None => Background::Ended,
            Some(Next::Drive(driver)) => {
                Background::Drives(DriverGuard::new(driver, &self.inbox, DriverKind::Background))
            }
            Some(Next::Pause(until)) => Background::Sleeps(Some(until), false),
            Some(Next::Watch(until)) => Background::Sleeps(until, true),
        };
    }

    fn poll(&mut self) {
        let (now_us, mut context) = (now_us(), Context::from_waker(Waker::noop()));
        let (answered, failed, given_up) =
            (&mut self.answered, &mut self.failed, &mut self.given_up);
        self.calls.retain_mut(|call| match call.future.as_mut().poll(&mut context) {
            Poll::Ready(ended) => {
                let is_late = call.due_us.is_some_and(|due_us| now_us > due_us);
                assert!(
                    !is_late,
                    "a call had to end {:?} us ago",
                    call.due_us.map(|at| now_us - at)
                );
                *if ended.is_ok() { &mut *answered } else { &mut *failed } += 1;
                false
            }
            Poll::Pending if call.gives_up_us <= now_us => {
                *given_up += 1;
                false
            }
            Poll::Pending => true,
        });
    }

    fn ask(&mut self) {
        let Some(client) = self.client.clone() else { return };
        let rng = &mut self.clock.rng;
        let number = self.next;
        self.next += 1;
        let key = format!("k:{}", rng.below(20)).into_bytes();
        // Taking the request, connecting, noticing the deadline, answering the caller: each takes a
        // turn that may be late.
        let lag = Duration::from_micros(self.clock.lag_us as u64 * 4);
        let deadline = rng.one_in(3).then(|| Duration::from_micros(rng.below(30_000) as u64));
        let client = client.with_deadline(deadline);
        // The opening of a connection and then the answer; and a server that hangs up on the probe
        // gets the request on a new connection, twice at most.
        let limit = deadline.map_or((self.timeout * 2 + lag) * 3, |deadline| deadline + lag);
        let mut due_us = Some(now_us() + u64::try_from(limit.as_micros()).unwrap_or(0));
        let gives_up_us = if rng.one_in(5) { now_us() + rng.below(5000) as u64 } else { u64::MAX };
        let takes = Duration::from_micros(rng.below(10_000) as u64);
        let future: Pin<Box<dyn Future<Output = Ended>>> = match rng.below(10) {
            0..4 => Box::pin(get(client, key)),
            4 => Box::pin(get_many(client, key)),
            5 => Box::pin(count(client, key, number)),
            6 => Box::pin(async move { client.delete(&key).await.map(drop) }),
            7 => {
                // As many waits as there may be.
                due_us = None;
                Box::pin(look_aside(client, key, number, takes))
            }
            _ => Box::pin(async move { client.set(&key, value(&key, number), 0).await }),
        };
        self.calls.push(Call { future, due_us, gives_up_us });
    }
}

fn value(key: &[u8], number: u64) -> Value {
    Value { bytes: unit(key, number), flags: 0, cas: 0 }
}

fn assert_own(key: &[u8], value: &Value) {
    assert!(is_of(key, &value.bytes), "{}: {}", key.escape_ascii(), value.bytes.escape_ascii());
}

async fn get(client: Client, key: Vec<u8>) -> Ended {
    client.get(&key).await.map(|got| got.iter().for_each(|value| assert_own(&key, value)))
}

async fn get_many(client: Client, key: Vec<u8>) -> Ended {
    let keys = [key, b"k:1".to_vec(), b"k:2".to_vec()];
    for (key, got) in keys.iter().zip(client.get_many(&keys).await?) {
        got?.iter().for_each(|value| assert_own(key, value));
    }
    Ok(())
}

async fn count(client: Client, key: Vec<u8>, number: u64) -> Ended {
    let got = client.incr(&key, number).await?;
    assert_eq!(got, Some(mark(&key, number)), "another's count");
    Ok(())
}

async fn look_aside(client: Client, key: Vec<u8>, number: u64, takes: Duration) -> Ended {
    let mut loads = 0;
    let reads = client.look_aside();
    let loaded = reads.get_or_load(&key, || {
        loads += 1;
        async {
            client.sleep(takes).await;
            Ok::<_, Error>(value(&key, number))
        }
    });
    let got = loaded.await.expect("what was loaded, if nothing else");
    assert_own(&key, &got);
    assert!(loads <= 1, "loaded {loads} times");
    Ok(())
}

/// Returns the numbers of answered, failed and abandoned calls, and of drives by callers.
fn run(seed: u64) -> [u64; 4] {
    let mut world = World::new(seed);
    let trouble_us = 5000 + world.clock.rng.below(100_000);
    system::with(|net| net.go_wild(trouble_us, &[]));
    let calls = 100 + world.clock.rng.below(200) as u64;
    while world.next < calls {
        for _ in 0..world.clock.rng.below(8) {
            world.ask();
        }
        world.poll();
        let until_us = now_us() + world.clock.rng.below(4000) as u64;
        world.turn(until_us);
    }
    system::with(Net::heal);
    let end_us = now_us() + 60_000_000;
    while !world.calls.is_empty() {
        assert!(now_us() < end_us, "calls without an end");
        world.turn(end_us);
    }
    // A caller that gave up leaves nothing behind.
    world.client = None;
    while !world.turn(end_us) {
        assert!(now_us() < end_us, "the driver does not end");
    }
    assert_executed_once();
    [world.answered, world.failed, world.given_up, world.led]
}

fn assert_executed_once() {
    let twice = system::with(|net| net.executed_twice());
    assert!(twice.is_empty(), "sent more than once: {twice:?}");
}

#[test]
fn abandoned_calls_never_mix_up_replies() {
    let (mut sums, mut runs) = ([0; 4], 0);
    seeds(300, "whoever_gives_up", |seed| {
        run(seed).into_iter().zip(&mut sums).for_each(|(one, sum)| *sum += one);
        runs += 1;
    });
    println!("{runs} runs: {sums:?} calls answered, failed, given up; leaders");
    assert!(runs < 100 || sums.iter().all(|sum| *sum > runs), "{sums:?}");
}
