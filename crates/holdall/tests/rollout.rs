//! Restarts one after the other, under load, without a failed request.
//!
//! Two of a kind, and clients that do what a balancer and a client library do: a new connection
//! goes to one that is ready; a connection that was closed before it gave any of a reply is made
//! anew, and the request is sent again. Anything else is a failure: a refused connection to one
//! that said ready, a reply that breaks off, a wrong one, or a silence. Then the same with haproxy
//! as the balancer, and in one place that is taken over.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::http::try_get;
use common::{SOON, Scratch, holdall, kill, wait_for};
use rustix::process::Signal;
use testkit::process::free_port;

/// The places of one of a kind: for clients, and for operators.
#[derive(Clone, Copy, Debug)]
struct Place {
    clients: SocketAddr,
    operators: SocketAddr,
}

impl Place {
    fn new() -> Self {
        let local = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        Self { clients: local(), operators: local() }
    }

    fn is_ready(&self) -> bool {
        try_get(self.operators, "/readyz").is_some_and(|(status, _)| status == 200)
    }
}

/// A process, killed when dropped.
struct Process(Child);

impl Process {
    /// Starts it and waits until it is ready.
    fn start(mut command: Command, place: &Place) -> Self {
        let mut process = Self(command.spawn().unwrap());
        wait_for("readiness", || {
            assert!(process.0.try_wait().unwrap().is_none(), "it ended");
            place.is_ready()
        });
        process
    }

    /// Ends it by one SIGTERM.
    fn end(mut self) {
        kill(self.0.id(), Signal::TERM);
        wait_for("the end", || self.0.try_wait().unwrap().is_some());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What clients count.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    /// Connections found closed, and made anew.
    reconnects: AtomicU64,
}

/// Starts a program with a listening socket, as systemd does by socket activation.
fn with_socket(command: &Command, listener: &TcpListener) -> Command {
    let mut shell = Command::new("sh");
    let activate = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\"";
    shell.args(["-c", activate]).arg(command.get_program()).args(command.get_args());
    shell.stdin(OwnedFd::from(listener.try_clone().unwrap()));
    shell
}

/// A request whose reply is long, so that a connection closed amid it is seen.
const REQUEST: &[u8] = b"get k k k k\r\n";

const VALUE_BYTES: usize = 20_000;

fn reply() -> Vec<u8> {
    let value = vec![b'v'; VALUE_BYTES];
    let one = [format!("VALUE k 0 {VALUE_BYTES}\r\n").as_bytes(), &value, b"\r\n"].concat();
    [one.repeat(4), b"END\r\n".to_vec()].concat()
}

/// The age of what is known of readiness when a client is sent somewhere.
const NEWS_AGE: Duration = Duration::from_millis(50);

/// A connection to one of the places that is ready.
fn connect(places: &[Place]) -> TcpStream {
    let ready = places.iter().find(|place| place.is_ready());
    let ready = ready.expect("none is ready");
    // What a balancer knows is never new.
    thread::sleep(NEWS_AGE);
    connect_to(ready.clients)
}

fn connect_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("one that is ready refuses");
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Asks over one connection. `None`: it was closed before any of the reply.
fn ask(stream: &mut TcpStream, reply: &[u8]) -> Option<()> {
    stream.write_all(REQUEST).ok()?;
    let (mut got, mut len) = (vec![0; reply.len()], 0);
    while len < reply.len() {
        match stream.read(&mut got[len..]) {
            Ok(0) if len == 0 => return None,
            Ok(0) => panic!("a reply broke off after {len} bytes"),
            Ok(read) => len += read,
            Err(error) if len == 0 && error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("after {len} bytes of a reply: {error}"),
        }
    }
    assert!(got == reply, "a wrong reply");
    Some(())
}

/// Asks until told to stop, over connections that `connect` makes.
fn client(connect: &dyn Fn() -> TcpStream, counts: &Counts, is_over: &AtomicBool) {
    let reply = reply();
    let mut stream = connect();
    // Relaxed, here and below: numbers and a flag that order nothing else.
    while !is_over.load(Ordering::Relaxed) {
        if ask(&mut stream, &reply).is_none() {
            counts.reconnects.fetch_add(1, Ordering::Relaxed);
            stream = connect();
            ask(&mut stream, &reply).expect("a new connection was closed, too");
        }
        counts.requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// Restarts each of two in turn while clients ask those that are ready.
fn roll(places: [Place; 2], start: impl Fn(&Place) -> Process) {
    let mut running: Vec<Option<Process>> = places.iter().map(|place| Some(start(place))).collect();
    let reconnects = under_load(4, &|| connect(&places), |round| {
        let index = round % 2;
        running[index].take().unwrap().end();
        running[index] = Some(start(&places[index]));
    });
    // Whoever was connected had to go elsewhere each time.
    assert!(reconnects >= 4, "{reconnects}");
}

/// Four clients ask over connections that `connect` makes while `change` is done that many times.
/// A client that fails fails the test. Answers how often connections were made anew.
fn under_load(
    changes: usize,
    connect: &(dyn Fn() -> TcpStream + Sync),
    mut change: impl FnMut(usize),
) -> u64 {
    let (counts, is_over) = (Counts::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let ask = || client(connect, &counts, &is_over);
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        for round in 0..changes {
            let before = counts.requests.load(Ordering::Relaxed);
            change(round);
            wait_for("requests", || {
                clients.iter().any(thread::ScopedJoinHandle::is_finished)
                    || counts.requests.load(Ordering::Relaxed) > before + 100
            });
            if clients.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    counts.reconnects.into_inner()
}

fn fill(place: SocketAddr) {
    let value = vec![b'v'; VALUE_BYTES];
    let header = format!("set k 0 0 {VALUE_BYTES}\r\n");
    let request = [header.as_bytes(), &value, b"\r\n"].concat();
    testkit::Wire::connect(place).expect(&request, b"STORED\r\n");
}

#[test]
fn servers_are_restarted_one_after_the_other_without_a_failed_request() {
    let scratch = Scratch::new();
    let start = |place: &Place| {
        let port = place.clients.port().to_string();
        // The items are kept: clients see no difference but the connection's end.
        let file = scratch.text(&port);
        let arguments = ["serve", "-p", &port, "-m", "32", "-e", &file, "--drain", "3"];
        let mut command = holdall(&arguments);
        command.args(["--metrics", &place.operators.to_string()]);
        command.stderr(fs::File::create(scratch.path(&format!("{port}.log"))).unwrap());
        let process = Process::start(command, place);
        if !scratch.path(&format!("{port}.filled")).exists() {
            fill(place.clients);
            fs::write(scratch.path(&format!("{port}.filled")), "").unwrap();
        }
        process
    };
    roll([Place::new(), Place::new()], start);
}

#[test]
fn proxies_are_restarted_one_after_the_other_without_a_failed_request() {
    let scratch = Scratch::new();
    let server = common::Running::serve(&["-m", "32"]);
    let behind = SocketAddr::from(([127, 0, 0, 1], server.port("TCP INET")));
    fill(behind);
    let config = format!(r#"{{"pools":{{"A":{{"servers":["{behind}"]}}}},"route":"PoolRoute|A"}}"#);
    fs::write(scratch.path("routes.json"), config).unwrap();
    let config = scratch.text("routes.json");
    let start = |place: &Place| {
        let port = place.clients.port().to_string();
        let arguments = ["route", "-f", &config, "-p", &port, "--asynclog-disable", "--drain", "3"];
        let mut command = holdall(&arguments);
        command.args(["-t", "60000", "--metrics", &place.operators.to_string()]);
        command.stderr(fs::File::create(scratch.path(&format!("{port}.log"))).unwrap());
        Process::start(command, place)
    };
    roll([Place::new(), Place::new()], start);
}

/// The same within one place: a second one takes it over, and nobody is ever refused.
#[test]
fn the_endpoint_goes_with_the_sockets_to_a_successor() {
    let scratch = Scratch::new();
    let place = Place::new();
    let file = scratch.text("memory");
    let port = place.clients.port().to_string();
    let operators = place.operators.to_string();
    let arguments = ["serve", "-p", &port, "-m", "32", "-e", &file, "--metrics", &operators];
    let mut first = Process::start(holdall(&arguments), &place);
    fill(place.clients);
    let mut command = holdall(&arguments);
    command.arg("--takeover");
    let _second = Process(command.spawn().unwrap());
    wait_for("the first one's end", || {
        assert!(TcpStream::connect(place.operators).is_ok(), "nobody listens for operators");
        thread::sleep(Duration::from_millis(1));
        first.0.try_wait().unwrap().is_some()
    });
    wait_for("readiness", || place.is_ready());
    let mut stream = TcpStream::connect(place.clients).unwrap();
    assert_eq!(ask(&mut stream, &reply()), Some(()));
}

/// Twenty servers, each in the place of the one before: nobody is refused, and the item is there.
#[test]
fn a_place_is_taken_over_twenty_times_without_a_failed_request() {
    let scratch = Scratch::new();
    let place = Place::new();
    let (port, operators) = (place.clients.port().to_string(), place.operators.to_string());
    let file = scratch.text("memory");
    let arguments = ["serve", "-p", &port, "-m", "32", "-e", &file, "--metrics", &operators];
    let mut present = Process::start(holdall(&arguments), &place);
    fill(place.clients);
    let reconnects = under_load(RESTARTS, &|| connect_to(place.clients), |_| {
        let mut command = holdall(&arguments);
        command.arg("--takeover");
        let next = Process(command.spawn().unwrap());
        let mut before = std::mem::replace(&mut present, next);
        wait_for("the end of the one before", || before.0.try_wait().unwrap().is_some());
        assert!(before.0.wait().unwrap().success());
        wait_for("readiness", || place.is_ready());
    });
    assert!(reconnects >= RESTARTS as u64, "{reconnects}");
}

/// Sockets are systemd's: connections that come while nobody serves wait in the kernel.
#[test]
fn a_server_with_systemd_s_socket_is_restarted_twenty_times_without_a_failed_request() {
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let operators = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let place = Place { clients: listener.local_addr().unwrap(), operators };
    let file = scratch.text("memory");
    let start = || {
        // The port is not used: a socket is there.
        let mut command = holdall(&["serve", "-p", "1", "-m", "32", "-e", &file]);
        command.args(["--metrics", &place.operators.to_string()]);
        let mut command = with_socket(&command, &listener);
        command.stderr(fs::File::create(scratch.path("log")).unwrap());
        Process::start(command, &place)
    };
    let mut running = Some(start());
    fill(place.clients);
    let reconnects = under_load(RESTARTS, &|| connect_to(place.clients), |_| {
        running.take().unwrap().end();
        running = Some(start());
    });
    assert!(reconnects >= RESTARTS as u64, "{reconnects}");
}

/// The same for a proxy, whose configuration is checked anew each time.
#[test]
fn a_proxy_with_systemd_s_socket_is_restarted_twenty_times_without_a_failed_request() {
    let scratch = Scratch::new();
    let server = common::Running::serve(&["-m", "32"]);
    let behind = SocketAddr::from(([127, 0, 0, 1], server.port("TCP INET")));
    fill(behind);
    let config = format!(r#"{{"pools":{{"A":{{"servers":["{behind}"]}}}},"route":"PoolRoute|A"}}"#);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let operators = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let place = Place { clients: listener.local_addr().unwrap(), operators };
    let start = || {
        let mut command = holdall(&["route", "--config-str", &config, "--asynclog-disable"]);
        command.args(["-t", "60000", "--metrics", &place.operators.to_string()]);
        let mut command = with_socket(&command, &listener);
        command.stderr(fs::File::create(scratch.path("log")).unwrap());
        Process::start(command, &place)
    };
    let mut running = Some(start());
    let reconnects = under_load(RESTARTS, &|| connect_to(place.clients), |_| {
        running.take().unwrap().end();
        running = Some(start());
    });
    assert!(reconnects >= RESTARTS as u64, "{reconnects}");
}

/// haproxy asks `/readyz`, and sends new connections to those that are ready. Clients know its
/// address alone.
#[test]
fn servers_behind_haproxy_are_restarted_twenty_times_without_a_failed_request() {
    let scratch = Scratch::new();
    let places = [Place::new(), Place::new()];
    let start = |place: &Place| {
        let port = place.clients.port().to_string();
        let file = scratch.text(&port);
        let mut command = holdall(&["serve", "-p", &port, "-m", "32", "-e", &file, "--drain", "1"]);
        command.args(["--metrics", &place.operators.to_string()]);
        Process::start(command, place)
    };
    let mut running: Vec<Option<Process>> = places.iter().map(|place| Some(start(place))).collect();
    places.iter().for_each(|place| fill(place.clients));
    let front = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let servers: String = (0..2)
        .map(|at| {
            let Place { clients, operators } = places[at];
            format!("  server s{at} {clients} check port {}\n", operators.port())
        })
        .collect();
    let config = format!(
        "defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 60s\n  timeout server 60s\n  \
         retries 3\n  option redispatch 1\n\
         frontend clients\n  bind {front}\n  default_backend servers\n\
         backend servers\n  balance roundrobin\n  option httpchk GET /readyz\n  \
         http-check expect status 200\n  default-server inter 100ms fall 1 rise 1\n{servers}"
    );
    fs::write(scratch.path("haproxy.cfg"), config).unwrap();
    let mut haproxy = Command::new("/usr/sbin/haproxy");
    haproxy.args(["-db", "-f", &scratch.text("haproxy.cfg")]);
    haproxy.stderr(fs::File::create(scratch.path("haproxy.log")).unwrap());
    let _haproxy = Process(haproxy.spawn().expect("haproxy is not installed"));
    wait_for("haproxy", || TcpStream::connect(front).is_ok());
    let reconnects = under_load(RESTARTS, &|| connect_to(front), |round| {
        let index = round % 2;
        running[index].take().unwrap().end();
        running[index] = Some(start(&places[index]));
        // As an operator's rollout does: the next one goes when this one has clients again.
        thread::sleep(2 * HEALTH_PERIOD);
    });
    assert!(reconnects >= RESTARTS as u64 / 2, "{reconnects}");
}

/// Restarts of a rollout.
const RESTARTS: usize = 20;

/// The time between two questions of haproxy, as its configuration above has it.
const HEALTH_PERIOD: Duration = Duration::from_millis(100);
