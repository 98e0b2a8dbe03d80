//! Threads that wait for their answers: who drives the connections, and that nobody is forgotten
//! when it changes.
//!
//! `OPS=n` sets how many calls race, `SEED=n` repeats their choices.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

mod echo;

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use client::{BlockingClient, Client, Command, Error, Value, block_on, together};
use echo::{Echo, value_of};
use testkit::Rng;

fn client(server: &Echo) -> BlockingClient {
    // However slow the machine is, an answer is in time; one that nobody reads fails the test.
    let builder = Client::builder().servers([server.address.to_string()]);
    BlockingClient::from(builder.timeout(Duration::from_secs(60)).build().unwrap())
}

fn assert_own(key: &str, got: Result<Option<Value>, Error>) {
    assert_eq!(got.unwrap().unwrap().bytes, value_of(key).into_bytes(), "{key}");
}

/// Polls a call once, so that it is asked, and gives it up.
async fn ask_and_go(call: impl Future) {
    let mut call = Box::pin(call);
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await;
}

#[test]
fn whoever_drives_everybody_is_answered() {
    const CALLERS: u64 = 6;
    let ops: u64 = std::env::var("OPS").map_or(12_000, |ops| ops.parse().unwrap());
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("SEED={seed} OPS={ops}");
    let server = Echo::new(|_| Duration::ZERO);
    let client = client(&server);
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (client, mut rng) = (&client, Rng::new(seed * CALLERS + caller));
            scope.spawn(move || {
                for turn in 0..ops / CALLERS {
                    call(client, &format!("{caller}.{turn}"), &mut rng);
                }
            });
        }
    });
    client.close();
    assert_eq!(client.client().servers()[0].totals.connects, 1);
}

fn call(client: &BlockingClient, key: &str, rng: &mut Rng) {
    let (asks, other) = (client.client(), format!("{key}.b"));
    match rng.below(40) {
        // Long enough for whoever drives to rest, and to watch again.
        0 => thread::sleep(Duration::from_millis(rng.below(25) as u64)),
        1..4 => asks.store_untold(Command::Set, key, "value", 0).unwrap(),
        4..7 => block_on(ask_and_go(asks.get(key))),
        7 => block_on(async {
            // Asked, and read by somebody else while this thread is busy with itself.
            let asked = ask_and_go(asks.get(key));
            asked.await;
            thread::sleep(Duration::from_millis(1));
            assert_own(&other, asks.get(&other).await);
        }),
        8..11 => {
            let got = block_on(together([asks.get(key), asks.get(&other)]));
            got.into_iter().zip([key, &other]).for_each(|(got, key)| assert_own(key, got));
        }
        // A wait within a wait.
        11 => assert_own(key, block_on(async { client.get(key) })),
        12..16 => {
            let got = client.get_many([key, &other]).unwrap();
            got.into_iter().zip([key, &other]).for_each(|(got, key)| assert_own(key, got));
        }
        _ => assert_own(key, client.get(key)),
    }
}

/// Whoever asked is gone, and nobody calls any more: the answer is read all the same.
#[test]
fn what_a_caller_leaves_behind_is_the_background_drivers() {
    let server = Echo::new(|_| Duration::ZERO);
    let client = client(&server);
    assert_own("first", client.get("first"));
    assert_own("alone", client.get("alone"));
    block_on(ask_and_go(client.client().get("given-up")));
    let end = Instant::now() + Duration::from_secs(30);
    while client.client().servers()[0].totals.answered < 3 {
        assert!(Instant::now() < end, "{:?}", client.client().servers()[0].totals);
        thread::sleep(Duration::from_millis(1));
    }
}
