//! Restarts one after the other, under load, without a failed request.
//!
//! Two processes of a kind, whose clients go to a ready one; two behind haproxy; one that is taken
//! over, or whose sockets are systemd's. Unchanged libraries also use the last three, through
//! twenty restarts each. `load` defines a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod load;
mod place;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;
use std::time::Duration;

use e2e::folder::Folder;
use load::{ask_once, connect_to, fill, under_load};
use place::{Place, Process, SOON, folder, holdall, local, status, with_sockets};
use rustix::net::{AddressFamily, SocketType};
use testkit::{Server, eventually};

/// The age of the readiness information when a client connects.
const NEWS_AGE: Duration = Duration::from_millis(50);

/// A connection to one of the ready processes.
fn connect(places: &[Place]) -> TcpStream {
    let ready = places.iter().find(|place| place.is_ready());
    let ready = ready.expect("none is ready");
    // A load balancer's information is never current.
    thread::sleep(NEWS_AGE);
    connect_to(ready.clients)
}

/// Restarts the two in turn while clients use a ready one.
fn roll(places: [Place; 2], start: impl Fn(&Place) -> Process) {
    let mut running: Vec<Option<Process>> = places.iter().map(|place| Some(start(place))).collect();
    let reconnects = under_load(4, None, &|| connect(&places), |round| {
        let index = round % 2;
        running[index].take().unwrap().end();
        running[index] = Some(start(&places[index]));
    });
    // Connected clients had to reconnect each time.
    assert!(reconnects >= 4, "{reconnects}");
}

/// The command of a server at this place. It keeps its items: clients notice only the closed
/// connection.
fn server(folder: &Folder, place: &Place, more: &[&str]) -> Command {
    let port = place.clients.port().to_string();
    let file = format!("{}/{port}", folder.name());
    let mut command = holdall(folder, &["serve", "-p", &port, "-m", "32", "-e", &file]);
    command.args(["--metrics", &place.operators.to_string()]).args(more);
    command
}

/// The command of a proxy before the server at `behind`.
fn proxy(folder: &Folder, place: &Place, behind: SocketAddr, more: &[&str]) -> Command {
    let config = format!(r#"{{"pools":{{"A":{{"servers":["{behind}"]}}}},"route":"PoolRoute|A"}}"#);
    let mut command = holdall(folder, &["route", "--config-str", &config, "--asynclog-disable"]);
    command.args(["-t", "60000", "--metrics", &place.operators.to_string()]).args(more);
    command
}

/// A filled server that is not restarted.
fn behind() -> Server {
    let server = Server::holdall(&["-m", "32"]);
    fill(server.addr());
    server
}

#[test]
fn rolling_restarts_of_servers_fail_no_request() {
    let folder = folder("servers");
    let places = [Place::new(), Place::new()];
    let start =
        |place: &Place| Process::start(&folder, server(&folder, place, &["--drain", "3"]), place);
    for place in &places {
        let first = start(place);
        fill(place.clients);
        first.end();
    }
    roll(places, start);
}

#[test]
fn rolling_restarts_of_proxies_fail_no_request() {
    let folder = folder("proxies");
    let behind = behind();
    let start = |place: &Place| {
        let port = place.clients.port().to_string();
        let more = ["-p", &port, "--drain", "3"];
        Process::start(&folder, proxy(&folder, place, behind.addr(), &more), place)
    };
    roll([Place::new(), Place::new()], start);
}

/// The same at one place: a second process takes over, and no client is ever refused.
#[test]
fn the_successor_serves_the_metrics_endpoint() {
    let folder = folder("endpoint");
    let place = Place::new();
    let mut first = Process::start(&folder, server(&folder, &place, &[]), &place);
    fill(place.clients);
    let _second = Process::spawn(server(&folder, &place, &["--takeover"]));
    eventually("the first one's end", || {
        assert!(TcpStream::connect(place.operators).is_ok(), "nobody listens for operators");
        !first.is_running()
    });
    eventually("readiness", || place.is_ready());
    ask_once(place.clients);
}

/// Twenty servers take over from each other: no client is refused, and the item is kept.
#[test]
fn twenty_takeovers_fail_no_request() {
    let folder = folder("takeover");
    let place = Place::new();
    let address = place.clients;
    let mut present = Process::start(&folder, server(&folder, &place, &[]), &place);
    fill(address);
    let reconnects = under_load(RESTARTS, Some(address), &|| connect_to(address), |_| {
        let next = Process::spawn(server(&folder, &place, &["--takeover"]));
        std::mem::replace(&mut present, next).ended();
        eventually("readiness", || place.is_ready());
    });
    assert!(reconnects >= RESTARTS as u64, "{reconnects}");
}

/// Restarts a process with systemd's socket: new connections wait in the kernel while no process
/// serves. The port of `command` is not used, because the socket exists.
fn with_systemds_socket(folder: &Folder, command: impl Fn(&Place) -> Command) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::of(&listener);
    let address = place.clients;
    let start = || {
        let socket = listener.try_clone().unwrap().into();
        Process::start(folder, with_sockets(folder, &command(&place), vec![socket]), &place)
    };
    let mut running = Some(start());
    fill(address);
    let reconnects = under_load(RESTARTS, Some(address), &|| connect_to(address), |_| {
        running.take().unwrap().end();
        running = Some(start());
    });
    assert!(reconnects >= RESTARTS as u64, "{reconnects}");
}

#[test]
fn twenty_socket_activated_restarts_of_a_server_fail_no_request() {
    let folder = folder("socket");
    with_systemds_socket(&folder, |place| server(&folder, place, &["-p", "1"]));
}

/// Its configuration is checked again each time.
#[test]
fn twenty_socket_activated_restarts_of_a_proxy_fail_no_request() {
    let folder = folder("proxy-socket");
    let behind = behind();
    with_systemds_socket(&folder, |place| proxy(&folder, place, behind.addr(), &[]));
}

/// The process distinguishes three sockets of systemd. On each, clients wait in the kernel while no
/// process serves.
#[test]
fn requests_wait_at_systemd_sockets_during_a_restart() {
    let folder = folder("three");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
    // As with `ReusePort=yes`: each worker adds its own socket.
    let udp = reusable_udp();
    let (operators, datagrams) = (metrics.local_addr().unwrap(), udp.local_addr().unwrap());
    let place = Place { clients: tcp.local_addr().unwrap(), operators };
    let start = || {
        let sockets: [OwnedFd; 3] = [
            tcp.try_clone().unwrap().into(),
            metrics.try_clone().unwrap().into(),
            udp.try_clone().unwrap().into(),
        ];
        let command = server(&folder, &place, &["-p", "1", "-U", "0"]);
        Process::start(&folder, with_sockets(&folder, &command, sockets.into()), &place)
    };
    let first = start();
    fill(place.clients);
    first.end();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    for round in 0..3 {
        // A frame: a number of the request, part 0 of 1, reserved; then the request.
        let request = [&[0, round, 0, 0, 0, 1, 0, 0], &b"version\r\n"[..]].concat();
        client.send_to(&request, datagrams).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| ask_once(place.clients));
            let page = scope.spawn(|| status(operators, "/livez"));
            let running = start();
            let mut reply = [0; 1400];
            let length = client.recv(&mut reply).expect("no datagram came");
            let reply = &reply[..length];
            assert!(reply.starts_with(&request[..8]), "{}", reply.escape_ascii());
            assert!(reply[8..].starts_with(b"VERSION "), "{}", reply.escape_ascii());
            waiting.join().unwrap();
            assert_eq!(page.join().unwrap(), Some(200));
            running.end();
        });
    }
}

/// A UDP socket on loopback with a port that other sockets may share.
fn reusable_udp() -> UdpSocket {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseport(&socket, true).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    socket.into()
}

/// haproxy checks `/readyz`, and sends new connections to ready servers. Clients know only its
/// address.
#[test]
fn twenty_restarts_behind_haproxy_fail_no_request() {
    let folder = folder("haproxy");
    let places = [Place::new(), Place::new()];
    let start =
        |place: &Place| Process::start(&folder, server(&folder, place, &["--drain", "1"]), place);
    let mut running: Vec<Option<Process>> = places.iter().map(|place| Some(start(place))).collect();
    places.iter().for_each(|place| fill(place.clients));
    let front = local();
    let _haproxy = haproxy(&folder, front, &places);
    eventually("haproxy", || TcpStream::connect(front).is_ok());
    let reconnects = under_load(RESTARTS, Some(front), &|| connect_to(front), |round| {
        let index = round % 2;
        running[index].take().unwrap().end();
        running[index] = Some(start(&places[index]));
        // As in an operator's rollout: the next one ends once this one has clients again.
        thread::sleep(2 * HEALTH_PERIOD);
    });
    assert!(reconnects >= RESTARTS as u64 / 2, "{reconnects}");
}

fn haproxy(folder: &Folder, front: SocketAddr, places: &[Place]) -> Process {
    let server = |(at, Place { clients, operators }): (usize, &Place)| {
        format!("  server s{at} {clients} check port {}\n", operators.port())
    };
    let servers: String = places.iter().enumerate().map(server).collect();
    let config = format!(
        "defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 60s\n  timeout server 60s\n  \
         retries 3\n  option redispatch 1\n\
         frontend clients\n  bind {front}\n  default_backend servers\n\
         backend servers\n  balance roundrobin\n  option httpchk GET /readyz\n  \
         http-check expect status 200\n  default-server inter 100ms fall 1 rise 1\n{servers}"
    );
    let path = folder.path().join("haproxy.cfg");
    fs::write(&path, config).unwrap();
    let mut haproxy = Command::new("/usr/sbin/haproxy");
    haproxy.args(["-db", "-f"]).arg(path);
    haproxy.stderr(fs::File::create(folder.path().join("haproxy.log")).unwrap());
    Process::spawn(haproxy)
}

/// Restarts of a rollout.
const RESTARTS: usize = 20;

/// The interval of haproxy's checks, as in its configuration above.
const HEALTH_PERIOD: Duration = Duration::from_millis(100);
