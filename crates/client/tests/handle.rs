//! The library for applications: no caller gets another's answer, whichever caller gives up, and in
//! whatever way.
//!
//! `OPS=n` sets the number of racing calls; by default enough for every way of giving up to happen
//! often.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

mod echo;

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use client::{
    BlockingClient, Builder, Client, Command, Error, Failure, Request, block_on, together,
};
use echo::{Echo, FOR_EVER, value_of};
use testkit::Server;

fn prompt() -> Echo {
    Echo::new(|_| Duration::ZERO)
}

fn client(servers: &[&Echo]) -> Client {
    let names = servers.iter().map(|server| server.address.to_string());
    // However slow the machine is, an answer is in time.
    Client::builder().servers(names).timeout(Duration::from_secs(60)).build().unwrap()
}

/// The outcomes of many calls.
#[derive(Debug, Default)]
struct Outcomes {
    answered: AtomicU64,
    /// Calls whose deadline had passed.
    late: AtomicU64,
    /// Calls that were dropped.
    dropped: AtomicU64,
    /// Calls that failed with their connection.
    failed: AtomicU64,
}

/// One call in a hundred has no time, and one is dropped while it waits; servers stall
/// occasionally, until the client closes the connection. Every answer must be that of the requested
/// key.
#[test]
fn abandoned_calls_never_mix_up_replies() {
    call_and_give_up(|builder| builder);
}

/// The same in packets.
#[test]
fn abandoned_binary_calls_never_mix_up_replies() {
    call_and_give_up(Builder::binary);
}

fn call_and_give_up(speak: fn(Builder) -> Builder) {
    const CALLERS: u64 = 64;
    let ops: u64 = std::env::var("OPS").map_or(40_000, |ops| ops.parse().unwrap());
    let servers: Vec<_> = (0..4)
        .map(|server| {
            Echo::new(move |line| {
                let stalls = line == 20 + server || line % 5000 == 1000 + server;
                if stalls { FOR_EVER } else { Duration::ZERO }
            })
        })
        .collect();
    let names = servers.iter().map(|server| server.address.to_string());
    let builder = Client::builder().servers(names).timeout(Duration::from_millis(250));
    let client = speak(builder.timeouts_until_tko(0).threads(2)).build().unwrap();
    let outcomes = Arc::new(Outcomes::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let callers = (0..CALLERS).map(|caller| {
            let (client, outcomes) = (client.clone(), Arc::clone(&outcomes));
            tokio::spawn(async move {
                for turn in 0..ops / CALLERS {
                    call(&client, caller, turn, &outcomes).await;
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    });
    eprintln!("{ops} calls: {outcomes:?}");
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    // How many of each depends upon the machine; that there are some does not.
    assert!(of(&outcomes.answered) > 0 && of(&outcomes.late) > 0 && of(&outcomes.dropped) > 0);
    assert!(of(&outcomes.failed) > 0, "no server has stalled");
}

async fn call(client: &Client, caller: u64, turn: u64, outcomes: &Outcomes) {
    let key = format!("{caller}.{turn}");
    // Different callers' odd calls fall on different turns.
    let got = match (turn + caller * 37) % 100 {
        0 => client.with_deadline(Some(Duration::ZERO)).get(&key).await,
        1 => {
            // Polled, so that it is sent; then dropped.
            let mut call = Box::pin(client.get(&key));
            let polled = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
            match polled {
                Poll::Ready(got) => got,
                Poll::Pending => {
                    outcomes.dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
        2 => {
            let pair = [key.clone(), format!("{key}.b")];
            let mut got = client.get_many(&pair).await.unwrap();
            if let Ok(Some(value)) = got.pop().unwrap() {
                assert_eq!(value.decode::<String>().unwrap(), value_of(&pair[1]));
            }
            got.pop().unwrap()
        }
        _ => client.get(&key).await,
    };
    let counter = match got {
        Ok(Some(value)) => {
            assert_eq!(value.decode::<String>().unwrap(), value_of(&key));
            &outcomes.answered
        }
        Ok(None) => panic!("{key}: a miss"),
        Err(Error::Cache(Failure::DeadlineExceeded, _)) => &outcomes.late,
        Err(_) => &outcomes.failed,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Three rounds of fifty gets, each of which needs the previous one, are three writes.
#[test]
fn dependent_gets_take_one_round_per_level() {
    let server = prompt();
    let client = client(&[&server]);
    block_on(client.get("connect")).unwrap();
    let writes = || client.servers()[0].totals.writes;
    let before = writes();
    let branches = (0..50).map(|branch| {
        let client = &client;
        async move {
            for level in 0..3 {
                let key = format!("{branch}.{level}");
                let value = client.get(&key).await.unwrap().unwrap();
                assert_eq!(value.decode::<String>().unwrap(), value_of(&key));
            }
            branch
        }
    });
    assert_eq!(block_on(together(branches)), (0..50).collect::<Vec<_>>());
    // The rounds of some branches may begin while others still wait for theirs: answers come in
    // more than one read.
    let rounds = writes() - before;
    // How many more depends upon where threads are interrupted: each write needs one at a moment of
    // its own.
    assert!((3..=60).contains(&rounds), "{rounds} writes for 150 gets");
}

#[test]
fn closing_sends_pending_requests() {
    let server = prompt();
    let client = client(&[&server]);
    for number in 0..1000 {
        client.store_untold(Command::Set, format!("k{number}"), "value", 0).unwrap();
    }
    block_on(client.close());
    assert_eq!(server.seen.sets.load(Ordering::SeqCst), 1000);
    assert_eq!(block_on(client.get("k")), Err(Error::Closed));
    block_on(client.close());
}

#[test]
fn a_client_that_is_dropped_leaves_no_connection() {
    let server = prompt();
    let client = client(&[&server]);
    block_on(client.get("k")).unwrap();
    drop(client.clone());
    block_on(client.get("k")).unwrap();
    drop(client);
    let end = Instant::now() + Duration::from_secs(10);
    while server.seen.ended.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < end, "the connection stands");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Only a late call fails: the connection and later calls continue.
#[test]
fn a_deadline_affects_only_its_caller() {
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let server = Echo::new(move |line| {
        while line == 1 && !ends.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Duration::ZERO
    });
    let client = client(&[&server]);
    block_on(client.get("first")).unwrap();
    let hasty = client.with_deadline(Some(Duration::from_millis(20)));
    let (late, patient) = block_on(async {
        let late = hasty.get("late").await;
        is_over.store(true, Ordering::SeqCst);
        (late, client.get("patient").await)
    });
    assert!(late.unwrap_err().is_timeout());
    assert_eq!(patient.unwrap().unwrap().bytes, value_of("patient").into_bytes());
    assert_eq!(client.servers()[0].totals.connects, 1);
}

#[test]
fn keys_cannot_inject_commands() {
    let server = prompt();
    let client = BlockingClient::from(client(&[&server]));
    for byte in 0..=255u8 {
        let key = [b'a', byte, b'b'];
        let is_good = byte > b' ' && byte != 0x7f;
        assert_eq!(client.get(key) == Err(Error::BadKey), !is_good, "{byte:#x}");
    }
    let long = "k".repeat(251);
    for key in ["", "k\r\nflush_all", "k 0 0 1\r\nx\r\nset y", &long] {
        assert_eq!(client.get(key), Err(Error::BadKey), "{key:?}");
        assert_eq!(client.set(key, "value", 0), Err(Error::BadKey), "{key:?}");
        assert!(client.get_many(["good", key]).is_err());
    }
    let words = Request { words: b"v\r\nflush_all", ..Request::new(Command::MetaGet, b"k") };
    assert_eq!(block_on(client.client().ask(words)), Err(Error::BadKey));
    assert_eq!(
        block_on(client.client().ask(Request::new(Command::Get, b"end"))).unwrap().value,
        b"value of end"
    );
    assert_eq!(client.client().servers()[0].totals.broken, 0);
}

#[test]
fn a_deadline_includes_calls_to_all_servers() {
    let silent = Echo::new(|_| FOR_EVER);
    let client = client(&[&silent]).with_deadline(Some(Duration::ZERO));
    let outcomes = [block_on(client.flush_all(0)), block_on(client.version()).map(drop)];
    for outcome in outcomes {
        let Err(Error::Cache(failure, _)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure, Failure::DeadlineExceeded);
    }
}

/// A silent server, and more callers than may wait.
#[test]
fn pending_requests_are_bounded() {
    let server = Echo::new(|_| FOR_EVER);
    let builder = Client::builder().servers([server.address.to_string()]);
    let client = builder.pending_max(10).timeout(Duration::from_secs(60)).build().unwrap();
    for number in 0..10 {
        client.store_untold(Command::Set, format!("k{number}"), "v", 0).unwrap();
    }
    let refused = block_on(client.get("k"));
    assert_eq!(refused, Err(Error::Cache(Failure::Busy, String::new())));
}

/// Of several threads and connections, a client's calls use one, its look-aside reads too.
#[test]
fn a_look_aside_read_follows_the_preceding_delete() {
    let server = Server::memcached(&[]);
    let client = Client::builder().servers([server.addr().to_string()]).threads(2).build().unwrap();
    let reads = client.look_aside().takes_stale(false);
    for round in 0..500 {
        let key = format!("k{round}");
        block_on(client.set(&key, "old", 0)).unwrap();
        client.tell(Request::new(Command::Delete, key.as_bytes())).unwrap();
        let got =
            block_on(reads.clone().get_or_load(&key, || async { Ok::<_, ()>("new".to_owned()) }));
        assert_eq!(got.unwrap(), "new");
    }
}

/// Keys that a configuration of mcrouter would route by their beginning, next to the key that would
/// be left of them.
#[test]
fn keys_of_plain_servers_have_no_routing_prefixes() {
    let server = Server::memcached(&[]);
    let client = Client::builder().servers([server.addr().to_string()]).build().unwrap();
    let client = BlockingClient::from(client);
    let reads = client.client().look_aside();
    let keys = ["k", "/././k", "/*/*/k", "/a/b/k", "/a/b/", "///"];
    for key in keys {
        client.set(key, key.as_bytes().to_vec(), 0).unwrap();
    }
    let mut wire = server.connect();
    for (key, got) in keys.into_iter().zip(client.get_many(keys).unwrap()) {
        assert_eq!(got.unwrap().unwrap().bytes, key.as_bytes(), "{key}");
        let item = format!("VALUE {key} 0 {}\r\n{key}\r\nEND\r\n", key.len());
        wire.expect(format!("get {key}\r\n").as_bytes(), item.as_bytes());
    }
    for key in keys {
        assert!(client.delete(key).unwrap(), "{key}");
        let mut loads = 0;
        for _ in 0..2 {
            let load = || {
                loads += 1;
                Ok::<_, ()>(format!("{key}, loaded"))
            };
            let got = client.get_or_load(&reads, key, load).unwrap();
            assert_eq!(got, format!("{key}, loaded"));
        }
        assert_eq!(loads, 1, "{key}");
    }
}

/// With the maximum wait of a caller for another's load.
#[test]
fn the_maximum_duration_is_a_valid_wait() {
    let server = Server::memcached(&[]);
    let client = Client::builder().servers([server.addr().to_string()]).build().unwrap();
    let patient = Duration::from_millis(2);
    let reads = client.look_aside().waits(patient, patient, Duration::MAX);
    let load = || async {
        client.get("other").await.unwrap();
        Ok::<_, ()>("loaded".to_owned())
    };
    let read = || reads.get_or_load("k", load);
    for got in block_on(together([read(), read()])) {
        assert_eq!(got.unwrap(), "loaded");
    }
    assert_eq!(client.look_aside_totals().shared, 1, "one of them has waited");
}

#[test]
fn a_configuration_error_has_its_position() {
    let broken = Client::builder().config_text("{\n \"route\": \"PoolRoute|A\"\n}").build();
    let error = broken.unwrap_err().to_string();
    assert!(error.starts_with("<text>:2:"), "{error}");
    for servers in [&[][..], &["a\"b:1"], &["host:99999"]] {
        assert!(Client::builder().servers(servers.iter().copied()).build().is_err(), "{servers:?}");
    }
}

#[test]
fn routes_can_be_replaced_while_they_are_used() {
    let (old, new) = (prompt(), prompt());
    let client = BlockingClient::from(client(&[&old]));
    client.set("k", "v", 0).unwrap();
    let builder = Client::builder().servers([new.address.to_string()]);
    client.client().replace_routes(&builder).unwrap();
    client.set("k", "v", 0).unwrap();
    let sets = |server: &Echo| server.seen.sets.load(Ordering::SeqCst);
    assert_eq!((sets(&old), sets(&new)), (1, 1));
}
