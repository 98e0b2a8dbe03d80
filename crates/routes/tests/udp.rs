//! Gets by UDP: from a real server, over a link that loses, duplicates and reorders datagrams
//! exactly as the test says; and the window.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::VecDeque;
use std::io::copy;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{Rig, patient};
use testkit::Server;
use testkit::process::free_port;
use upstream::{Command, Failure, Outcome, Request, Settings, Totals, Window};

/// The fate of the next datagram from the server.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Drop,
    Pass,
    /// It comes after the following one.
    Swap,
    Twice,
    /// The server could not answer by UDP.
    Refuse,
}

/// A link to a server. TCP passes unchanged, UDP by the fates; without any left, all passes.
struct Link {
    address: SocketAddr,
    fates: Arc<Mutex<VecDeque<Fate>>>,
    _server: Server,
}

impl Link {
    fn new() -> Self {
        let port = free_port();
        // One thread: with several, the datagrams of one reply would mix with those of the next.
        let server = Server::memcached(&["-U", &port.to_string(), "-t", "1"]);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let near = UdpSocket::bind(address).unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.connect(("127.0.0.1", port)).unwrap();
        let fates = Arc::new(Mutex::new(VecDeque::new()));
        let server_address = server.addr();
        thread::spawn(move || {
            for client in tcp.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(server_address).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || drop(copy(&mut from, &mut to)));
                let (mut from, mut to) = (server, client);
                thread::spawn(move || drop(copy(&mut from, &mut to)));
            }
        });
        let client = Arc::new(Mutex::new(None));
        let (requests, replies) = (near.try_clone().unwrap(), near);
        let (asks, asker) = (far.try_clone().unwrap(), Arc::clone(&client));
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((len, from)) = requests.recv_from(&mut buffer) {
                *asker.lock().unwrap() = Some(from);
                asks.send(&buffer[..len]).unwrap();
            }
        });
        let told = Arc::clone(&fates);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut held: Option<Vec<u8>> = None;
            while let Ok(len) = far.recv(&mut buffer) {
                let to = client.lock().unwrap().unwrap();
                let send =
                    |bytes: &[u8]| assert_eq!(replies.send_to(bytes, to).unwrap(), bytes.len());
                let fate = told.lock().unwrap().pop_front().unwrap_or(Fate::Pass);
                match fate {
                    Fate::Drop => {}
                    Fate::Pass => send(&buffer[..len]),
                    Fate::Swap => held = Some(buffer[..len].to_vec()),
                    Fate::Twice => {
                        send(&buffer[..len]);
                        send(&buffer[..len]);
                    }
                    Fate::Refuse => {
                        let refusal = [&buffer[..2], b"\0\0\0\x01\0\0SERVER_ERROR too large\r\n"];
                        send(&refusal.concat());
                    }
                }
                if let Some(bytes) = held.take_if(|_| !matches!(fate, Fate::Swap)) {
                    send(&bytes);
                }
            }
        });
        Self { address, fates, _server: server }
    }

    fn tell(&self, fates: &[Fate]) {
        self.fates.lock().unwrap().extend(fates);
    }

    /// A worker that sends gets by UDP, and considers them lost after this time.
    fn rig(&self, lost_after: Duration) -> Rig {
        let settings = Settings { udp_gets: Some(lost_after), ..patient() };
        Rig::new(settings, |servers| servers.at(self.address)).freeze()
    }

    /// Asks for a key whose reply will not come, and is lost after this time.
    #[track_caller]
    fn lose(&self, rig: &mut Rig, key: &str, lost_after: Duration) {
        let left = self.fates.lock().unwrap().len();
        let ticket = rig.submit(&Request::new(Command::Get, key.as_bytes()));
        rig.eventually("the link has it", |_| self.fates.lock().unwrap().len() < left);
        rig.turn();
        assert!(!rig.has_reply(ticket), "too early");
        rig.pass(lost_after);
        assert_eq!(rig.reply(ticket).outcome, Outcome::Failed(Failure::Timeout));
    }
}

/// Long enough to show that a loss was known at once.
const LONG: Duration = Duration::from_secs(60);

/// The time after which a get is lost, by the clock of the test.
const SHORT: Duration = Duration::from_millis(500);

#[track_caller]
fn totals(rig: &Rig) -> Totals {
    rig.registry.report()[0].totals
}

#[test]
fn gets_use_udp_and_other_requests_use_tcp() {
    let link = Link::new();
    let mut rig = link.rig(LONG);
    let large = "v".repeat(100_000);
    for number in 0..50 {
        assert_eq!(
            rig.store(Command::Set, &format!("k{number}"), &format!("v{number}")),
            Outcome::Stored
        );
    }
    assert_eq!(rig.store(Command::Set, "large", &large), Outcome::Stored);
    let keys: Vec<_> = (0..60).map(|number| format!("k{number}")).collect();
    let tickets: Vec<_> =
        keys.iter().map(|key| rig.submit(&Request::new(Command::Get, key.as_bytes()))).collect();
    for (number, ticket) in tickets.into_iter().enumerate() {
        let reply = rig.reply(ticket);
        if number < 50 {
            assert_eq!(reply.value, format!("v{number}").into_bytes());
        } else {
            assert_eq!(reply.outcome, Outcome::NotFound);
        }
    }
    assert_eq!(totals(&rig).udp_asked, 60);
    assert_eq!(totals(&rig).asked, 111);
    let tickets = [b"k1", b"k2", b"xx"].map(|key| rig.submit(&Request::new(Command::Get, key)));
    let replies = tickets.map(|ticket| rig.reply(ticket).value);
    assert_eq!(replies, [b"v1".to_vec(), b"v2".to_vec(), Vec::new()]);
    assert_eq!(rig.get("large"), Ok(Some(large)), "a reply of many datagrams");
    assert!(rig.ask(&Request::new(Command::Gets, b"k1")).number > 0);
    assert_eq!(rig.simple(Command::Delete, "k1"), Outcome::Deleted);
    assert_eq!(rig.get("k1"), Ok(None));
    // Late ones occur: memcached answers a line of keys with several messages.
    let Totals { udp_lost, udp_reordered, .. } = totals(&rig);
    assert_eq!((udp_lost, udp_reordered), (0, 0));
}

/// UDP and TCP are two paths to the server.
#[test]
fn a_get_does_not_overtake_its_clients_earlier_requests() {
    let link = Link::new();
    let mut rig = link.rig(LONG);
    assert_eq!(rig.store(Command::Set, "other", "o"), Outcome::Stored);
    for turn in 0..100 {
        let value = format!("v{turn}");
        // The first meta command waits until the server is known to accept it.
        let op = if turn % 2 == 0 { Command::MetaSet } else { Command::Set };
        let set = Request { value: value.as_bytes(), ..Request::new(op, b"k") };
        let tickets = [
            rig.submit(&set),
            rig.submit(&Request::new(Command::Get, b"k")),
            rig.submit(&Request::new(Command::Get, b"other")),
            rig.submit(&Request::new(Command::Delete, b"k")),
            rig.submit(&Request::new(Command::Gets, b"k")),
        ];
        let [_, got, other, deleted, after] = tickets.map(|ticket| rig.reply(ticket));
        assert_eq!(got.value, value.as_bytes(), "turn {turn}");
        assert_eq!(other.value, b"o");
        assert_eq!((deleted.outcome, after.outcome), (Outcome::Deleted, Outcome::NotFound));
    }
    let flush = rig.submit(&Request::new(Command::FlushAll, b""));
    let other = rig.submit(&Request::new(Command::Get, b"other"));
    assert_eq!(rig.reply(flush).outcome, Outcome::Ok);
    assert_eq!(rig.reply(other).outcome, Outcome::NotFound);
    // Gets of unchanged keys still go by UDP, except for the one in whose turn everything waited
    // for the probe.
    assert_eq!(totals(&rig).udp_asked, 99);
}

#[test]
fn lost_and_late_datagrams_are_counted() {
    let link = Link::new();
    let mut rig = link.rig(SHORT);
    assert_eq!(rig.store(Command::Set, "k", "v"), Outcome::Stored);
    let found = Ok(Some("v".to_owned()));
    link.tell(&[Fate::Drop, Fate::Pass, Fate::Twice, Fate::Pass, Fate::Drop]);
    link.lose(&mut rig, "k", SHORT);
    for _ in 0..3 {
        assert_eq!(rig.get("k"), found);
    }
    link.lose(&mut rig, "k", SHORT);
    assert_eq!(rig.get("k"), found);
    let Totals { udp_lost, udp_reordered, udp_late, .. } = totals(&rig);
    assert_eq!((udp_lost, udp_reordered, udp_late), (2, 0, 1));
}

/// A reply that comes after its request was given up is not taken for another's.
#[test]
fn a_late_reply_reaches_no_request() {
    let link = Link::new();
    let mut rig = link.rig(SHORT);
    for key in ["a", "b"] {
        assert_eq!(rig.store(Command::Set, key, key), Outcome::Stored);
    }
    // The reply to a comes after that to b, long after it was lost.
    link.tell(&[Fate::Swap]);
    link.lose(&mut rig, "a", SHORT);
    assert_eq!(rig.get("b"), Ok(Some("b".to_owned())));
    rig.eventually("the late one comes", |rig| totals(rig).udp_late == 1);
    assert_eq!(rig.get("a"), Ok(Some("a".to_owned())));
}

#[test]
fn reordered_datagrams_are_an_error_at_once() {
    let link = Link::new();
    let mut rig = link.rig(LONG);
    let large = "v".repeat(5000);
    assert_eq!(rig.store(Command::Set, "large", &large), Outcome::Stored);
    for fates in
        [&[Fate::Swap][..], &[Fate::Drop], &[Fate::Pass, Fate::Drop], &[Fate::Pass, Fate::Twice]]
    {
        link.tell(fates);
        assert_eq!(rig.get("large"), Err(Failure::RemoteError), "{fates:?}");
        assert_eq!(rig.get("large"), Ok(Some(large.clone())), "the next one is as ever");
    }
    let Totals { udp_lost, udp_reordered, .. } = totals(&rig);
    assert_eq!((udp_lost, udp_reordered), (0, 4));
}

#[test]
fn gets_refused_over_udp_are_repeated_by_tcp() {
    let link = Link::new();
    let mut rig = link.rig(LONG);
    for key in ["a", "b"] {
        assert_eq!(rig.store(Command::Set, key, key), Outcome::Stored);
    }
    link.tell(&[Fate::Refuse]);
    let tickets = [b"a", b"b", b"c"].map(|key| rig.submit(&Request::new(Command::Get, key)));
    let replies = tickets.map(|ticket| rig.reply(ticket).value);
    assert_eq!(replies, [b"a".to_vec(), b"b".to_vec(), Vec::new()]);
}

#[test]
fn a_link_that_loses_everything_is_replaced_by_tcp() {
    let link = Link::new();
    let mut rig = link.rig(SHORT);
    assert_eq!(rig.store(Command::Set, "a", "a"), Outcome::Stored);
    // After ten consecutive lines.
    link.tell(&[Fate::Drop; 10]);
    for _ in 0..10 {
        link.lose(&mut rig, "a", SHORT);
    }
    for _ in 0..10 {
        assert_eq!(rig.get("a"), Ok(Some("a".to_owned())));
    }
    assert_eq!(totals(&rig).udp_asked, 10);
}

#[test]
fn the_window_limits_outstanding_requests() {
    let servers: Vec<_> = (0..3).map(|_| Server::memcached(&[])).collect();
    for window in [Window::Fixed(4), Window::Adaptive] {
        let mut rig = Rig::over(|upstream| {
            upstream.set_window(window);
            let ids = servers
                .iter()
                .map(|server| upstream.destination(&server.addr().into(), &patient()));
            let ids: Vec<_> = ids.collect();
            let routes = ids.iter().map(|id| -> routes::route::RouteRef {
                Arc::new(routes::route::DestinationRoute {
                    id: *id,
                    label: "".into(),
                    asynclog: None,
                    keeps_prefix: false,
                    shadows: Default::default(),
                })
            });
            let children = routes.collect();
            let root = routes::route::Selecting(routes::route::RandomRoute { children });
            routes::Tree { root: Arc::new(root), destinations: ids, keeps_prefixes: false }
        });
        let tickets: Vec<_> =
            (0..500).map(|_| rig.submit(&Request::new(Command::Get, b"absent"))).collect();
        let outstanding =
            |rig: &Rig| rig.registry.report().iter().map(|one| one.totals.pending).sum();
        let most: u64 = outstanding(&rig);
        assert_eq!(most, if window == Window::Adaptive { 16 } else { 4 });
        for ticket in tickets {
            assert_eq!(rig.reply(ticket).outcome, Outcome::NotFound);
            if window == Window::Fixed(4) {
                assert!(outstanding(&rig) <= 4);
            }
        }
    }
}
