//! Popular client libraries, unchanged, through `holdall route` before two servers.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use e2e::clients::{Client, check_with_an_unavailable_server};
use rustix::process::Signal;
use testkit::server::holdall_path;
use testkit::{FaultProxy, Kind, Launch, Mode, Router, Server, Wire};

/// Two servers, and a proxy before them.
fn routed(kind: Kind) -> (Vec<Server>, Router) {
    let servers: Vec<_> = (0..2).map(|_| Launch::new(kind).start()).collect();
    let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
    let args = ["--num-proxies", "2", "--enable-flush-cmd"];
    let proxy = Router::over(&addrs, r#""PoolRoute|all""#, &args);
    (servers, proxy)
}

/// The same with the binary protocol to the servers.
fn routed_in_packets(kind: Kind) -> (Vec<Server>, Router) {
    let servers: Vec<_> = (0..2).map(|_| Launch::new(kind).start()).collect();
    let [one, two] = [servers[0].addr(), servers[1].addr()];
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{one}:binary", "{two}"], "protocol": "binary"}}}}, "route": "PoolRoute|A"}}"#
    );
    let args = ["--num-proxies", "2", "--enable-flush-cmd", "--asynclog-disable"];
    (servers, Router::start(&config, &args))
}

/// Runs one client through proxies to servers of both kinds, in text and in binary.
fn check(client: Client) {
    for kind in [Kind::Holdall, Kind::Memcached] {
        check_before(client, routed(kind));
        check_before(client, routed_in_packets(kind));
    }
}

fn check_before(client: Client, (mut servers, mut proxy): (Vec<Server>, Router)) {
    client.check(proxy.addr(), true);
    servers.iter_mut().for_each(|server| server.assert_alive("the client"));
    assert!(proxy.is_running(), "the proxy has ended");
}

#[test]
fn pymemcache() {
    check(Client::Pymemcache);
}

#[test]
fn pylibmc_with_libmemcached() {
    check(Client::Pylibmc);
}

#[test]
fn gomemcache() {
    check(Client::Gomemcache);
}

#[test]
fn memcached_for_node() {
    check(Client::NodeMemcached);
}

#[test]
fn python_binary_memcached() {
    check(Client::Bmemcached);
}

#[test]
fn dalli() {
    check(Client::Dalli);
}

/// Errors of the unavailable server among the hits would make a client take a value for another
/// key's.
#[test]
fn binary_clients_with_an_unavailable_server() {
    let server = Launch::new(Kind::Holdall).start();
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}", "127.0.0.1:1"]}}}}, "route": "PoolRoute|A"}}"#,
        server.addr()
    );
    let proxy = Router::start(&config, &[]);
    check_with_an_unavailable_server(proxy.addr());
}

/// It uses commands that the binary protocol lacks.
#[test]
fn meta_memcache() {
    for kind in [Kind::Holdall, Kind::Memcached] {
        check_before(Client::MetaMemcache, routed(kind));
    }
}

#[test]
fn spymemcached() {
    check(Client::Spymemcached);
}

#[test]
fn memjs() {
    check(Client::Memjs);
}

/// libmemcached's own check of a server, text and binary: 54 tests.
#[test]
fn memccapable() {
    let proxies = [Kind::Holdall, Kind::Memcached]
        .into_iter()
        .flat_map(|kind| [(kind, routed(kind)), (kind, routed_in_packets(kind))]);
    for (kind, (_servers, proxy)) in proxies {
        let (host, port) = (proxy.addr().ip().to_string(), proxy.addr().port().to_string());
        let words = ["-t", "20", "-h", &host, "-p", &port];
        let output = Command::new("memccapable").args(words).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(text.matches("[pass]").count(), 54, "{kind:?}:\n{text}");
    }
}

/// `enable_lease_pairing`: a lease of the second child is redeemed there, although the first would
/// accept the set by then.
#[test]
fn a_lease_is_redeemed_at_its_issuer() {
    let [first, second] = [(); 2].map(|()| Launch::new(Kind::Holdall).start());
    let route = r#"{"type": "FailoverRoute", "name": "pair", "enable_lease_pairing": true, "children": [
        {"type": "OperationSelectorRoute", "default_policy": "PoolRoute|A",
         "operation_policies": {"lease-get": "ErrorRoute|away"}}, "PoolRoute|B"]}"#;
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}, "B": {{"servers": ["{}"]}}}}, "route": {route}}}"#,
        first.addr(),
        second.addr()
    );
    let proxy = Router::start(&config, &[]);
    let mut client = Wire::connect(proxy.addr());
    client.send(b"lease-get k\r\n");
    let reply = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    let token: u64 = reply.split(' ').nth(2).unwrap().parse().unwrap();
    assert_eq!(token >> 32, 0x7ace_b00c, "{reply}");
    let set = |token: u64| format!("lease-set k {token} 0 0 1\r\nv\r\n");
    client.expect(set(token).as_bytes(), b"STORED\r\n");
    second.connect().expect(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    first.connect().expect(b"get k\r\n", b"END\r\n");
    client.expect(set(token).as_bytes(), b"NOT_STORED\r\n");
}

/// A proxy that serves this socket, which it receives as descriptor 0.
fn serving(listener: &TcpListener, name: &str) -> Child {
    let socket = OwnedFd::from(listener.try_clone().unwrap());
    let config = format!(r#"{{"route": "ErrorRoute|{name}"}}"#);
    Command::new(holdall_path())
        .args(["route", "--listen-sock-fd", "0", "--asynclog-disable", "--config-str", &config])
        .stdin(Stdio::from(socket))
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// `--listen-sock-fd`: an owner of the socket may replace the program that uses it, without a
/// refused connection.
#[test]
fn an_inherited_listening_socket_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for name in ["first", "second"] {
        // No process serves it yet.
        let mut early = Wire::connect(address);
        let mut proxy = serving(&listener, name);
        let answer = format!("SERVER_ERROR {name}\r\n");
        early.expect(b"get k\r\n", answer.as_bytes());
        Wire::connect(address).expect(b"get k\r\n", answer.as_bytes());
        proxy.kill().unwrap();
        proxy.wait().unwrap();
    }
}

/// A descriptor that is not a listening socket is refused at the start, by its number.
#[test]
fn a_descriptor_without_a_listening_socket_is_refused() {
    for number in ["0", "77"] {
        let words = ["route", "--config-str", "{\"route\": \"NullRoute\"}", "--listen-sock-fd"];
        let mut command = Command::new(holdall_path());
        let output = command.args(words).arg(number).stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(told.contains(&format!("--listen-sock-fd {number}: ")), "{told}");
    }
}

/// A server's reply is late; the proxy waits for it, and then exits.
#[test]
fn termination_signals_let_pending_replies_finish() {
    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let server = Launch::new(Kind::Holdall).start();
        let between = FaultProxy::before(server.addr());
        let proxy = Router::over(&[between.addr()], r#""PoolRoute|all""#, &[]);
        let mut wire = proxy.connect();
        wire.expect(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
        between.set(Mode::Held);
        wire.send(b"get k\r\n");
        proxy.wait_for("proxy_request_num_outstanding", 1);
        let (ended, end) = mpsc::channel();
        thread::spawn(move || ended.send(proxy.end_by(signal)));
        assert!(end.recv_timeout(Duration::from_millis(300)).is_err(), "{signal:?}: too early");
        between.set(Mode::Open);
        assert_eq!(wire.read_until(b"END\r\n"), b"VALUE k 0 1\r\nv\r\nEND\r\n");
        assert!(end.recv().unwrap().success(), "{signal:?}");
    }
}

/// memcached's own script, which requests `stats`, `settings`, `items` and `slabs`, and ends at the
/// first unknown reply.
#[test]
fn memcached_tool_works_with_the_proxy() {
    let (_servers, proxy) = routed(Kind::Holdall);
    let addr = proxy.addr().to_string();
    proxy.connect().expect(b"get k\r\n", b"END\r\n");
    for (mode, line) in [
        ("stats", "get_misses 1"),
        ("settings", "num_threads 2"),
        ("display", "# Item_Size Max_age Pages Count Full? Evicted Evict_Time OOM"),
    ] {
        let tool = "/usr/share/memcached/scripts/memcached-tool";
        let output = Command::new(tool).args([&addr, mode]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{mode}: {errors}");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|one| words(one) == line), "{mode}: {text}");
    }
}
