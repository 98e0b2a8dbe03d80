//! Threads that wait for their answers: which one drives the connections, and that no caller is
//! forgotten when it changes.
//!
//! `OPS=n` sets the number of racing calls, `SEED=n` repeats their choices.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

mod echo;

use std::future::{Future, poll_fn};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use client::{BlockingClient, Client, Command, Error, Failure, Request, Value, block_on, together};
use echo::{Echo, FOR_EVER, value_of};
use testkit::Rng;

fn client(server: &Echo) -> BlockingClient {
    // However slow the machine is, an answer is in time; one that nobody reads fails the test.
    let builder = Client::builder().servers([server.address.to_string()]);
    BlockingClient::from(builder.timeout(Duration::from_secs(60)).build().unwrap())
}

fn assert_own(key: &str, got: Result<Option<Value>, Error>) {
    assert_eq!(got.unwrap().unwrap().bytes, value_of(key).into_bytes(), "{key}");
}

/// Polls a call once, so that it is sent, and gives it up.
async fn ask_and_go(call: impl Future) {
    let mut call = Box::pin(call);
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await;
}

#[test]
fn every_caller_is_answered_under_any_driver() {
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
        // Long enough for the driving thread to rest, and to watch again.
        0 => thread::sleep(Duration::from_millis(rng.below(25) as u64)),
        1..4 => asks.store_untold(Command::Set, key, "value", 0).unwrap(),
        4..7 => block_on(ask_and_go(asks.get(key))),
        7 => block_on(async {
            // Sent, and read by another thread while this one is busy.
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

/// The caller has gone, and no other call follows: the answer is read anyway.
#[test]
fn the_background_driver_finishes_abandoned_calls() {
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

/// A thread drives the connections of one client; the timers of the other that it waits for are
/// kept, too.
#[test]
fn a_silent_client_times_out_while_another_is_driven() {
    let silent = Echo::new(|line| if line < 2 { Duration::ZERO } else { FOR_EVER });
    let prompt = Echo::new(|_| Duration::ZERO);
    let (ends, ended) = mpsc::channel();
    thread::spawn(move || {
        let (first, second) = (client(&silent), client(&prompt));
        for key in ["first", "alone"] {
            assert_own(key, first.get(key));
            assert_own(key, second.get(key));
        }
        // Both background drivers rest, and no timer of the calls before wakes them soon.
        thread::sleep(Duration::from_secs(3));
        let hasty = first.client().with_deadline(Some(Duration::from_millis(50)));
        ends.send(block_on(together([hasty.get("k"), second.client().get("k")]))).unwrap();
    });
    // The timers of the calls before would end it after a minute.
    let mut got = ended.recv_timeout(Duration::from_secs(40)).expect("it never returns");
    assert_own("k", got.pop().unwrap());
    let Some(Err(Error::Cache(failure, _))) = got.pop() else { panic!("a silent server") };
    assert_eq!(failure, Failure::DeadlineExceeded);
}

/// A call that waits within others that are sent together is sent before it waits.
#[test]
fn a_blocking_call_within_joined_calls_is_answered() {
    let server = Echo::new(|_| Duration::ZERO);
    let (ends, ended) = mpsc::channel();
    thread::spawn(move || {
        let client = &client(&server);
        let got = block_on(together(["a", "b"].map(|key| async move { client.get(key) })));
        ends.send(got).unwrap();
    });
    let got = ended.recv_timeout(Duration::from_secs(40)).expect("it never returns");
    got.into_iter().zip(["a", "b"]).for_each(|(got, key)| assert_own(key, got));
}

/// Of calls made together, as many are sent as may be outstanding; those without a waiter report
/// the refusal themselves.
#[test]
fn only_joined_calls_beyond_the_limit_are_refused() {
    const LIMIT: usize = 10;
    let silent = Echo::new(|_| FOR_EVER);
    let of = |builder: client::Builder| builder.pending_max(LIMIT).build().unwrap();
    let builder =
        || Client::builder().servers([silent.address.to_string()]).timeout(Duration::from_secs(60));
    let keys: Vec<String> = (0..=LIMIT).map(|number| format!("k{number}")).collect();
    let is_busy = |error: &Error| matches!(error, Error::Cache(Failure::Busy, _));

    let client = of(builder());
    let tell = |key: &String| client.tell(Request::new(Command::Delete, key.as_bytes()));
    let told = block_on(together(keys.iter().map(|key| async { tell(key) })));
    assert_eq!(told.iter().filter(|told| told.is_ok()).count(), LIMIT);
    assert!(told[LIMIT].as_ref().is_err_and(is_busy), "{told:?}");

    let client = of(builder().deadline(Duration::from_millis(50)));
    let got = block_on(together(keys.iter().map(|key| client.get(key))));
    let busy = got.iter().filter(|got| got.as_ref().is_err_and(is_busy)).count();
    assert_eq!(busy, 1, "{got:?}");
}
