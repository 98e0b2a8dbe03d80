//! Servers that lie, or are silent, slow or gone: only their own requests suffer, and for a bounded
//! time.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::{Rig, Scripted, patient, quick};
use routes::Tree;
use routes::route::{NullRoute, PrefixSelectorRoute, Selecting};
use testkit::faulty_server::value_of;
use testkit::{Fault, FaultyServer};
use upstream::{
    Command, Failure, LOGIN_PATIENCE, Login, Outcome, Protocol, Request, Settings, State,
};

/// Keys with the prefix `bad` go to the bad server, the others to the good one.
fn two(settings: Settings, bad: &Scripted, good: &Scripted) -> Rig {
    let rig = Rig::new(settings, |servers| {
        let policies = vec![(b"bad".to_vec(), servers.at(bad.address))];
        let good = servers.at(good.address);
        Arc::new(Selecting(PrefixSelectorRoute::new(policies, good)))
    });
    rig.freeze()
}

/// Answers every get with the value of its own key.
fn honest() -> Scripted {
    Scripted::new(|asked| Some(asked.lines().map(values_of).collect()))
}

fn values_of(line: &str) -> String {
    let Some(keys) = line.strip_prefix("get ") else {
        return if line == "version" { "VERSION 1\r\n".into() } else { "STORED\r\n".into() };
    };
    let values = keys.split(' ').map(|key| format!("VALUE {key} 0 {}\r\n{key}\r\n", key.len()));
    values.chain(["END\r\n".to_owned()]).collect()
}

#[test]
fn a_faulty_reply_fails_only_its_requests_and_closes() {
    let lies = [
        "VALUE other 0 5\r\nother\r\nEND\r\n",
        "VALUE bad1 0 3\r\nlonger\r\nEND\r\n",
        "VALUE bad1 0 4294967293\r\n",
        "VALUE bad1 0 18446744073709551616\r\nEND\r\n",
        "VALUE bad1 0 2147483640\r\nx",
        "VALUE bad1 0 -1\r\n",
        "hello\r\n",
        "STORED\r\n",
        "\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ];
    for lie in lies {
        let (bad, good) = (Scripted::new(move |_| Some(lie.to_owned())), honest());
        let mut rig = two(quick(), &bad, &good);
        let lied = rig.submit(&Request::new(Command::Get, b"bad1"));
        let behind = rig.submit(&Request::new(Command::Delete, b"bad2"));
        let other = rig.submit(&Request::new(Command::Get, b"good"));
        assert_eq!(rig.reply(other).value, b"good", "{lie:?}");
        for ticket in [lied, behind] {
            assert_eq!(rig.reply(ticket).outcome, Outcome::Failed(Failure::RemoteError), "{lie:?}");
        }
        let report = rig.registry.report();
        let totals = report.iter().find(|one| one.address == bad.address.into()).unwrap().totals;
        assert_eq!((totals.broken, totals.connected), (1, 0), "{lie:?}");
        assert_eq!(rig.get("good"), Ok(Some("good".into())));
    }
}

#[test]
fn an_unsolicited_reply_closes_the_connection() {
    // The second answer is unsolicited, and must not reach the next request.
    let bad = Scripted::new(|asked| {
        let own = values_of(asked.lines().next().unwrap());
        Some(format!("{own}VALUE bad9 0 6\r\nstolen\r\nEND\r\n"))
    });
    let good = honest();
    let mut rig = two(quick(), &bad, &good);
    for round in 0..20 {
        let key = format!("bad{round}");
        match rig.get(&key) {
            Ok(Some(value)) => assert_eq!(value, key),
            Ok(None) | Err(Failure::RemoteError | Failure::Tko) => {}
            other => panic!("{other:?}"),
        }
    }
    let report = rig.registry.report();
    assert!(report.iter().any(|one| one.totals.broken > 0));
}

#[test]
fn a_late_reply_is_dropped() {
    let (heard, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (tells, waits) = (Arc::clone(&heard), Arc::clone(&late));
    let bad = Scripted::new(move |asked| {
        if asked.contains("bad1") {
            tells.store(true, Ordering::SeqCst);
            while !waits.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Some(values_of(asked.lines().next().unwrap()))
    });
    let good = honest();
    let mut rig = two(Settings { timeouts_until_tko: 0, ..quick() }, &bad, &good);
    let first = rig.submit(&Request::new(Command::Get, b"bad1"));
    rig.eventually("it is asked", |_| heard.load(Ordering::SeqCst));
    rig.pass(quick().timeout);
    assert_eq!(rig.reply(first).outcome, Outcome::Failed(Failure::Timeout));
    // The answer for bad1 comes while other requests wait for theirs.
    let second = rig.submit(&Request::new(Command::Get, b"bad2"));
    late.store(true, Ordering::SeqCst);
    assert_eq!(rig.reply(second).value, b"bad2");
    for _ in 0..20 {
        assert_eq!(rig.get("bad2"), Ok(Some("bad2".into())));
    }
}

#[test]
fn silence_times_out_then_knocks_out_until_a_reply() {
    let speaks = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&speaks);
    let bad = Scripted::new(move |asked| {
        Some(if now.load(Ordering::SeqCst) {
            asked.lines().map(values_of).collect()
        } else {
            String::new()
        })
    });
    let good = honest();
    let mut rig = two(quick(), &bad, &good);
    let tickets: Vec<_> = (0..3).map(|_| rig.submit(&Request::new(Command::Get, b"bad"))).collect();
    assert_eq!(rig.get("good"), Ok(Some("good".into())));
    let connected =
        |rig: &mut Rig| rig.registry.report().iter().all(|one| one.totals.connected == 1);
    rig.eventually("there is a connection", connected);
    rig.pass(quick().timeout - Duration::from_millis(1));
    rig.turn();
    assert!(tickets.iter().all(|ticket| !rig.has_reply(*ticket)), "too early");
    rig.pass(Duration::from_millis(1));
    for ticket in tickets {
        assert_eq!(rig.reply(ticket).outcome, Outcome::Failed(Failure::Timeout));
    }
    assert_eq!(rig.get("bad"), Err(Failure::Tko));
    assert_eq!(rig.get("good"), Ok(Some("good".into())));
    speaks.store(true, Ordering::SeqCst);
    comes_back(&mut rig, "bad");
}

/// The value has its reply, so no request waits for the rest of the line; later ones do.
#[test]
fn silence_before_the_end_of_a_line_times_out() {
    let lease = Request { number: 1, ..Request::new(Command::LeaseSet, b"z") };
    for later in [lease, Request::new(Command::Get, b"z")] {
        let bad = Scripted::new(|asked| {
            Some(if asked == "get k\r\n" { "VALUE k 0 1\r\nv\r\nE" } else { "" }.to_owned())
        });
        let settings = Settings { timeouts_until_tko: 1, ..quick() };
        let mut rig = Rig::new(settings, |servers| servers.at(bad.address)).freeze();
        assert_eq!(rig.get("k"), Ok(Some("v".into())));
        let waits = [rig.submit(&later), rig.submit(&Request::new(Command::Delete, b"k"))];
        rig.pass(quick().timeout);
        for ticket in waits {
            assert_eq!(rig.reply(ticket).outcome, Outcome::Failed(Failure::Timeout));
        }
        assert_eq!(rig.get("k"), Err(Failure::Tko));
    }
}

/// Lets time pass until the server of `key` answers again. Each probe has as many turns as it
/// needs.
#[track_caller]
fn comes_back(rig: &mut Rig, key: &str) {
    rig.eventually("the server is back", |rig| {
        if rig.get(key) == Ok(Some(key.into())) {
            return true;
        }
        rig.pass(Duration::from_millis(10));
        false
    });
}

#[test]
fn a_refused_connection_knocks_out_until_a_restart() {
    // Bound, but not listening: no other program gets the port.
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    rustix::net::bind(&socket, &any).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    let mut rig = Rig::new(quick(), |servers| servers.at(address)).freeze();
    assert_eq!(rig.get("k"), Err(Failure::ConnectError));
    assert_eq!(rig.get("k"), Err(Failure::Tko));
    assert_eq!(rig.registry.report()[0].state, State::HardTko);
    rustix::net::listen(&listener, 16).unwrap();
    let _back = Scripted::on(listener, |asked| Some(asked.lines().map(values_of).collect()));
    comes_back(&mut rig, "k");
}

#[test]
fn no_request_is_sent_twice() {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    // Reads the request, and closes the connection.
    let bad = Scripted::new(move |asked| {
        seen.fetch_add(u32::try_from(asked.matches("incr").count()).unwrap(), Ordering::SeqCst);
        None
    });
    let mut rig = Rig::new(quick(), |servers| servers.at(bad.address)).freeze();
    for _ in 0..5 {
        let request = Request { number: 1, ..Request::new(Command::Incr, b"n") };
        assert_eq!(rig.ask(&request).outcome, Outcome::Failed(Failure::RemoteError));
    }
    assert_eq!(count.load(Ordering::SeqCst), 5);
}

#[test]
fn pending_requests_of_a_server_are_bounded() {
    let bad = Scripted::new(|_| Some(String::new()));
    let settings = Settings { pending_max: 10, ..quick() };
    let mut rig = Rig::new(settings, |servers| servers.at(bad.address)).freeze();
    let tickets: Vec<_> = (0..12).map(|_| rig.submit(&Request::new(Command::Get, b"k"))).collect();
    rig.eventually("there is a connection", |rig| rig.registry.report()[0].totals.connected == 1);
    rig.pass(quick().timeout);
    let outcomes: Vec<_> = tickets.into_iter().map(|ticket| rig.reply(ticket).outcome).collect();
    let busy = outcomes.iter().filter(|one| **one == Outcome::Failed(Failure::Busy)).count();
    let late = outcomes.iter().filter(|one| **one == Outcome::Failed(Failure::Timeout)).count();
    assert_eq!((busy, late), (2, 10));
}

/// A reply cut into single bytes, a value larger than any read, and many requests at once.
#[test]
fn replies_can_arrive_in_any_pieces() {
    let big = "x".repeat(3_000_000);
    let expected = big.clone();
    let server = Scripted::new(move |asked| {
        let whole: String = asked
            .lines()
            .map(|line| {
                if line == "get big" {
                    format!("VALUE big 0 {}\r\n{big}\r\nEND\r\n", big.len())
                } else {
                    values_of(line)
                }
            })
            .collect();
        Some(whole)
    });
    let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
    assert_eq!(rig.get("big"), Ok(Some(expected)));
    let keys: Vec<String> = (0..1000).map(|n| format!("k{n}")).collect();
    let tickets: Vec<_> =
        keys.iter().map(|key| rig.submit(&Request::new(Command::Get, key.as_bytes()))).collect();
    for (key, ticket) in keys.iter().zip(tickets) {
        assert_eq!(rig.reply(ticket).value, key.as_bytes());
    }
    let totals = rig.registry.report()[0].totals;
    assert!(totals.writes < 20, "1001 requests in {} writes", totals.writes);
}

/// Sends ten thousand requests, twenty per turn in one line to the server, which answers one in ten
/// with a lie: a value is its own key's, or there is none. Time passes only when the faulty server
/// reports a silence that exceeds every timeout.
#[test]
fn faulty_text_replies_never_reach_another_request() {
    let faulty = FaultyServer::start(&Fault::ALL, 10, Duration::from_millis(50));
    let (found, failed) = question(&faulty, quick());
    // Seven of ten lies fail a whole line.
    assert!(
        faulty.faults() == 50 && found >= 5000 && failed >= 700,
        "{} lies, {found} found, {failed} failed",
        faulty.faults()
    );
}

/// Servers that lie in packets, any of which may be a lie. A lie ends its connection, so at most
/// the twenty requests of its turn are lost. With L lies, there are at least (500 - L) * 20
/// packets, and at least seven in ten lies fail a request.
#[test]
fn faulty_binary_replies_never_reach_another_request() {
    let faulty = FaultyServer::start(&Fault::ALL, 199, Duration::from_millis(50));
    let settings = Settings { protocol: Protocol::Binary, ..quick() };
    let (found, failed) = question(&faulty, settings);
    assert!(
        faulty.faults() >= 45 && found >= 5000 && failed >= 30,
        "{} lies, {found} found, {failed} failed",
        faulty.faults()
    );
}

/// Asks for twenty keys in each of 500 turns; returns how many were found, and how many failed.
fn question(faulty: &FaultyServer, settings: Settings) -> (u32, u32) {
    let timeout = settings.timeout;
    let mut rig = Rig::new(settings, |servers| servers.at(faulty.addr())).freeze();
    let (mut found, mut failed, mut silences) = (0, 0, 0);
    for round in 0..500 {
        let keys: Vec<String> = (0..20).map(|number| format!("k{round}-{number}")).collect();
        let tickets: Vec<_> = keys
            .iter()
            .map(|key| rig.submit(&Request::new(Command::Get, key.as_bytes())))
            .collect();
        rig.eventually("answers, or silence", |rig| {
            let seen = faulty.silences();
            if std::mem::replace(&mut silences, seen) != seen {
                rig.pass(timeout);
            }
            tickets.iter().all(|ticket| rig.has_reply(*ticket))
        });
        for (key, ticket) in keys.iter().zip(tickets) {
            let reply = rig.reply(ticket);
            match reply.outcome {
                Outcome::Found => {
                    assert_eq!(String::from_utf8_lossy(&reply.value), value_of(key));
                    found += 1;
                }
                Outcome::Failed(_) => failed += 1,
                other => panic!("{key}: {other:?}"),
            }
        }
        rig.eventually("it is back", |rig| {
            let is_back = rig.registry.report()[0].state == State::Up;
            if !is_back {
                rig.pass(Duration::from_millis(10));
            }
            is_back
        });
    }
    (found, failed)
}

/// Servers refuse late on purpose: ours after a second, which is the time for a connection.
#[test]
fn a_late_login_refusal_is_reported_as_a_refusal() {
    let (heard, hears) = mpsc::channel();
    let (tell, told) = mpsc::channel::<()>();
    let told = Mutex::new(told);
    let server = Scripted::new(move |asked| {
        heard.send(asked.to_owned()).unwrap();
        told.lock().unwrap().recv().ok()?;
        Some("CLIENT_ERROR no\r\n".to_owned())
    });
    let settings = Settings { login: Some(Login::new("app", "wrong")), ..Settings::default() };
    let mut rig = Rig::new(settings, |servers| servers.at(server.address)).freeze();
    let ticket = rig.submit(&Request::new(Command::Get, b"k"));
    rig.eventually("the login is heard", |_| hears.try_recv().is_ok());
    rig.pass(Settings::default().connect_timeout + Duration::from_millis(500));
    assert!(!rig.has_reply(ticket));
    tell.send(()).unwrap();
    let reply = rig.reply(ticket);
    assert_eq!(reply.outcome, Outcome::Failed(Failure::ConnectError));
    assert_eq!(reply.value.escape_ascii().to_string(), "the login is refused: CLIENT_ERROR no");
}

/// The time for an answer starts once the connection is open, also after retries.
#[test]
fn a_request_has_its_time_after_a_slow_opening() {
    let (heard, hears) = mpsc::channel();
    let (tell, told) = mpsc::channel::<&str>();
    let (told, is_again) = (Mutex::new(told), AtomicBool::new(false));
    let server = Scripted::new(move |asked| {
        heard.send(asked.to_owned()).unwrap();
        if !is_again.swap(true, Ordering::SeqCst) {
            return Some(String::new());
        }
        told.lock().unwrap().recv().ok().map(str::to_owned)
    });
    let login = Some(Login::new("app", "secret"));
    let settings = Settings { login, connect_retries: 1, ..quick() };
    let to_open = settings.connect_timeout + LOGIN_PATIENCE;
    let mut rig = Rig::new(settings, |servers| servers.at(server.address)).freeze();
    let ticket = rig.submit(&Request::new(Command::Get, b"k"));
    let heard_next = |rig: &mut Rig| {
        let mut text = String::new();
        rig.eventually("it is asked", |_| hears.try_recv().map(|asked| text = asked).is_ok());
        text
    };
    assert!(heard_next(&mut rig).starts_with("set "));
    rig.pass(to_open);
    assert!(heard_next(&mut rig).starts_with("set "));
    rig.pass(to_open - Duration::from_millis(1));
    tell.send("STORED\r\n").unwrap();
    assert_eq!(heard_next(&mut rig), "get k\r\n");
    rig.pass(quick().timeout - Duration::from_millis(1));
    assert!(!rig.has_reply(ticket));
    tell.send("VALUE k 0 1\r\nv\r\nEND\r\n").unwrap();
    assert_eq!(rig.reply(ticket).value, b"v");
    let silent = rig.submit(&Request::new(Command::Get, b"k"));
    assert_eq!(heard_next(&mut rig), "get k\r\n");
    rig.pass(quick().timeout);
    assert_eq!(rig.reply(silent).outcome, Outcome::Failed(Failure::Timeout));
}

#[test]
fn a_server_with_two_protocols_is_reported_for_each() {
    let server = Scripted::new(|_| None);
    let address = server.address.into();
    let binary = Settings { protocol: Protocol::Binary, ..quick() };
    let rig = Rig::over(|upstream| {
        let destinations = [quick(), binary].map(|one| upstream.destination(&address, &one));
        Tree {
            root: Arc::new(NullRoute),
            destinations: destinations.to_vec(),
            keeps_prefixes: false,
        }
    });
    let protocols: Vec<Protocol> = rig.registry.report().iter().map(|one| one.protocol).collect();
    assert_eq!(protocols, [Protocol::Binary, Protocol::Text]);
}
