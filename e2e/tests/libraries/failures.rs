//! Reads by 200 callers while loads are slow, fail or are cancelled, and while leases are refused.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Lease, LookAside, block_on};
use e2e::certificates::Folder;
use testkit::{Kind, Launch, Rng, Server};

const CALLERS: usize = 200;

/// The number of processes that the servers see: each client has its own connections and state.
const CLIENTS: usize = 10;

/// A slow database that counts the loads of each key, in total and at a time.
#[derive(Default)]
struct Database {
    keys: Mutex<BTreeMap<String, Load>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    begun: u64,
    running: u64,
    most: u64,
}

/// A load that runs until this is dropped.
struct Running<'d>(&'d Database, String);

impl Database {
    fn begin(&self, key: &str) -> Running<'_> {
        let mut keys = self.keys.lock().unwrap();
        let load = keys.entry(key.to_owned()).or_default();
        load.begun += 1;
        load.running += 1;
        load.most = load.most.max(load.running);
        Running(self, key.to_owned())
    }

    fn of(&self, key: &str) -> Load {
        self.keys.lock().unwrap().get(key).copied().unwrap_or_default()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.keys.lock().unwrap().get_mut(&self.1).unwrap().running -= 1;
    }
}

fn client(server: &str) -> Client {
    let builder = Client::builder().servers([server.to_owned()]);
    builder.timeout(Duration::from_secs(60)).build().unwrap()
}

fn clients(servers: &[&Server]) -> Vec<LookAside> {
    let names: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    let build = |_| {
        let builder = Client::builder().servers(names.clone()).timeout(Duration::from_secs(60));
        builder.build().unwrap().look_aside().exptime(60)
    };
    (0..CLIENTS).map(build).collect()
}

/// 200 callers, each in a thread, with its number and its client's reads.
fn herd(clients: &[LookAside], call: impl Fn(usize, &LookAside) + Sync) {
    let barrier = std::sync::Barrier::new(CALLERS);
    thread::scope(|scope| {
        for number in 0..CALLERS {
            let (call, barrier, reads) = (&call, &barrier, &clients[number % clients.len()]);
            scope.spawn(move || {
                barrier.wait();
                call(number, reads);
            });
        }
    });
}

/// Loads a row, in `takes_ms` milliseconds.
async fn load(database: &Database, key: &str, takes_ms: u64) -> Result<String, String> {
    let _running = database.begin(key);
    thread::sleep(Duration::from_millis(takes_ms));
    Ok("row".to_owned())
}

#[test]
fn readers_wait_for_a_slow_load() {
    let server = Launch::new(Kind::Holdall).start();
    let database = Database::default();
    herd(&clients(&[&server]), |_, reads| {
        let row = block_on(reads.get_or_load("slow", || load(&database, "slow", 3000)));
        assert_eq!(row, Ok("row".to_owned()));
    });
    let load = database.of("slow");
    assert_eq!((load.begun, load.most), (1, 1));
}

/// Past its deadline, a reader loads what another process is loading, and takes no lease from it.
#[test]
fn a_deadline_bounds_the_wait_for_another_process() {
    let server = Launch::new(Kind::Holdall).start();
    let (slow, hasty) = (client(&server.addr().to_string()), client(&server.addr().to_string()));
    let lease = block_on(slow.lease_get("k")).unwrap();
    let Lease::Fill { token, .. } = lease else { panic!("{lease:?}") };
    let reads = hasty.with_deadline(Some(Duration::from_millis(100))).look_aside();
    let got = block_on(reads.get_or_load("k", || async { Ok::<_, ()>("own".to_owned()) }));
    assert_eq!(got, Ok("own".to_owned()));
    assert!(block_on(slow.lease_set("k", "slow", 0, token)).unwrap(), "the lease has ended");
    assert_eq!(block_on(hasty.get("k")).unwrap().unwrap().bytes, b"slow");
}

#[test]
fn other_callers_retry_failed_loads() {
    let server = Launch::new(Kind::Holdall).args(&["-o", "lease_interval=3600"]).start();
    let (database, clients) = (Database::default(), clients(&[&server]));
    let attempts = AtomicU64::new(0);
    for round in 0..20 {
        let key = format!("failing{round}");
        let failed = AtomicU64::new(0);
        herd(&clients, |_, reads| {
            let load = || async {
                let number = attempts.fetch_add(1, Ordering::SeqCst);
                let row = load(&database, &key, 5).await;
                if number.is_multiple_of(3) { Err("the database is down".to_owned()) } else { row }
            };
            match block_on(reads.get_or_load(&key, load)) {
                Ok(row) => assert_eq!(row, "row"),
                Err(_) => _ = failed.fetch_add(1, Ordering::SeqCst),
            }
        });
        assert!(database.of(&key).most <= 2, "{:?}", database.of(&key));
        assert!(failed.into_inner() < CALLERS as u64, "nobody had the value");
    }
    assert!(attempts.into_inner() >= 20);
}

/// Callers give up at random, during loads and waits: no caller waits for the lease of an absent
/// holder, which would take an hour here.
#[test]
fn abandoned_loads_leave_no_caller_waiting() {
    let server = Launch::new(Kind::Holdall).args(&["-o", "lease_interval=3600"]).start();
    let (database, clients) = (Database::default(), clients(&[&server]));
    for round in 0..10 {
        let key = format!("cancelled{round}");
        herd(&clients, |number, reads| {
            let mut rng = Rng::new((round * CALLERS + number) as u64);
            let gives_up = rng.one_in(2).then(|| Duration::from_millis(rng.below(30) as u64));
            let begun = Instant::now();
            let load = || async {
                let _running = database.begin(&key);
                // A load that continues while others are polled, and can be cancelled.
                let until = Instant::now() + Duration::from_millis(10);
                poll_fn(|context| {
                    context.waker().wake_by_ref();
                    thread::sleep(Duration::from_millis(1));
                    if Instant::now() >= until { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                Ok::<_, String>("row".to_owned())
            };
            let mut call = Box::pin(reads.get_or_load(&key, load));
            let got = block_on(poll_fn(|context| {
                let polled = call.as_mut().poll(context).map(Some);
                let Some(after) = gives_up.filter(|_| polled.is_pending()) else { return polled };
                if begun.elapsed() >= after {
                    return Poll::Ready(None);
                }
                // Poll again shortly in any case.
                thread::sleep(Duration::from_millis(1));
                context.waker().wake_by_ref();
                Poll::Pending
            }));
            assert!(got.is_none_or(|row| row == Ok("row".to_owned())));
        });
        assert!(database.of(&key).most <= 2, "{:?}", database.of(&key));
    }
}

#[test]
fn a_refused_lease_disables_leases_only_for_its_key() {
    let folder = Folder::new();
    let users = folder.write("users", "app:secret\n");
    let rights = folder.write("rights", "app readwrite app:\napp read shared:\n");
    let rights = format!("rights={rights}");
    let server = Launch::new(Kind::Holdall).args(&["-Y", &users, "-o", &rights]).start();
    let build = |_| {
        let builder = Client::builder().servers([server.addr().to_string()]);
        let builder = builder.timeout(Duration::from_secs(60)).login("app", "secret");
        builder.build().unwrap().look_aside()
    };
    let (database, clients) = (Database::default(), (0..CLIENTS).map(build).collect::<Vec<_>>());
    for key in ["shared:1", "app:2", "shared:1", "app:3"] {
        // Callers in one process share the load of a key without leases.
        let clients = if key == "shared:1" { &clients[..1] } else { &clients[..] };
        herd(clients, |_, reads| {
            let row = block_on(reads.get_or_load(key, || load(&database, key, 100)));
            assert_eq!(row, Ok("row".to_owned()));
        });
        let load = database.of(key);
        assert_eq!(load.most, 1, "{key}: {load:?}");
        assert!(key == "shared:1" || load.begun == 1, "{key}: {load:?}");
    }
}

#[test]
fn only_keys_of_a_memcached_server_go_without_leases() {
    let ours = Launch::new(Kind::Holdall).start();
    let memcached = Launch::new(Kind::Memcached).start();
    let (database, clients) = (Database::default(), clients(&[&ours, &memcached]));
    let at_ours = client(&ours.addr().to_string());
    let mut with_leases = 0;
    for number in 0..8 {
        let key = format!("mixed{number}");
        herd(&clients, |_, reads| {
            let row = block_on(reads.get_or_load(&key, || load(&database, &key, 100)));
            assert_eq!(row, Ok("row".to_owned()));
        });
        let load = database.of(&key);
        if block_on(at_ours.get(&key)).unwrap().is_some() {
            with_leases += 1;
            assert_eq!((load.begun, load.most), (1, 1), "{key}");
        } else {
            assert!(load.most <= CLIENTS as u64, "{key}: one in each process: {load:?}");
        }
    }
    assert!((1..8).contains(&with_leases), "{with_leases} keys on our server");
}
