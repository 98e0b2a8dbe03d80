//! A new server takes over from a running one (`--takeover`): no connect is refused, no reply is
//! wrong, every item is kept; and if the new one fails, the old one continues.
//!
//! `TAKEOVERS=n` sets the number of takeovers under load.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where it fails"
)]

use e2e::values::{make, store, version};
use rustix::net;
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::process::free_port;
use testkit::wire::End;
use testkit::{Kind, Launch, Rng, Server, Wire, eventually};

/// Files of one server, removed at the end.
struct Place {
    memory: PathBuf,
    unix: PathBuf,
    udp: u16,
}

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-takeover-{}-{number}", std::process::id());
        let memory = PathBuf::from("/dev/shm").join(&name);
        Self { memory, unix: std::env::temp_dir().join(name), udp: free_port() }
    }

    fn launch(&self) -> Launch {
        let (memory, unix) = (self.memory.to_str().unwrap(), self.unix.to_str().unwrap());
        let udp = self.udp.to_string();
        let sockets = ["-s", unix, "-a", "0777", "-o", "keep_tcp,udp_amplification=0", "-U", &udp];
        Launch::new(Kind::Holdall).args(&["-e", memory, "-m", "64", "-t", "2"]).args(&sockets)
    }

    fn start(&self) -> Server {
        self.launch().start()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.memory);
        let _ = std::fs::remove_file(format!("{}.takeover", self.memory.display()));
    }
}

const KEYS: usize = 2000;

fn fill(server: &Server) {
    let mut wire = server.connect();
    for number in 0..KEYS {
        let key = format!("k{number}");
        store(&mut wire, &key, &make(&key, 1, 32 + number % 900)).unwrap();
    }
}

/// The results of clients.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    gets: AtomicU64,
    sets: AtomicU64,
    closed: AtomicU64,
    longest_us: AtomicU64,
}

/// Gets existing keys, stores them again, and reconnects when the connection is closed.
fn use_until_told(addr: SocketAddr, seed: u64, seen: &Seen) {
    let mut rng = Rng::new(seed);
    while !seen.stop.load(Ordering::Relaxed) {
        let mut wire = Wire::try_connect(addr).expect("no connect is refused");
        while !seen.stop.load(Ordering::Relaxed) {
            let started = Instant::now();
            if !use_once(&mut wire, &mut rng, seen) {
                seen.closed.fetch_add(1, Ordering::Relaxed);
                break;
            }
            let us = u64::try_from(started.elapsed().as_micros()).unwrap();
            seen.longest_us.fetch_max(us, Ordering::Relaxed);
        }
    }
}

/// Sends one request; returns false if the connection was closed without a reply.
fn use_once(wire: &mut Wire, rng: &mut Rng, seen: &Seen) -> bool {
    let key = format!("k{}", rng.below(KEYS));
    let patience = Duration::from_secs(20);
    if rng.one_in(4) {
        let value = make(&key, 2, 32 + rng.below(900));
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        if wire.try_send(&[head.as_bytes(), &value, b"\r\n"].concat()).is_err() {
            return false;
        }
        let (reply, end) = wire.read_until_or_end(b"\r\n", patience);
        assert!(is_whole(&reply, end, b"STORED\r\n"), "{end:?} {}", reply.escape_ascii());
        seen.sets.fetch_add(u64::from(!reply.is_empty()), Ordering::Relaxed);
        return !reply.is_empty();
    }
    if wire.try_send(format!("get {key}\r\n").as_bytes()).is_err() {
        return false;
    }
    let (reply, end) = wire.read_until_or_end(b"END\r\n", patience);
    if reply.is_empty() && matches!(end, End::Closed | End::Reset) {
        return false;
    }
    assert_eq!(end, End::Found, "a whole reply or none: {}", reply.escape_ascii());
    let head = reply.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    assert!(reply.starts_with(b"VALUE "), "a miss: {}", reply.escape_ascii());
    version(&key, &reply[head..reply.len() - 7]).unwrap();
    seen.gets.fetch_add(1, Ordering::Relaxed);
    true
}

fn is_whole(reply: &[u8], end: End, want: &[u8]) -> bool {
    reply == want || reply.is_empty() && matches!(end, End::Closed | End::Reset)
}

/// Each datagram gets a reply in the end, even if no server runs when it is sent.
fn ask_by_udp(port: u16) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.send_to(b"\0\x07\0\0\0\x01\0\0get k1\r\n", (Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut reply = [0; 2000];
    let len = socket.recv(&mut reply).expect("an answer by UDP");
    assert!(reply[8..len].starts_with(b"VALUE k1 "), "{}", reply[..len].escape_ascii());
}

/// If the old server closes the connection before it has read anything, reconnects, as any client
/// does.
fn ask_by_unix(place: &Place) {
    while ask_by_unix_once(place).is_err() {}
}

fn ask_by_unix_once(place: &Place) -> std::io::Result<()> {
    use std::io::{Read, Write};
    let mut stream =
        std::os::unix::net::UnixStream::connect(&place.unix).expect("no connect is refused");
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"get k1\r\n")?;
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    assert_eq!(&head, b"VALUE k1 ");
    Ok(())
}

#[test]
fn takeovers_under_load_refuse_no_connection_and_keep_every_item() {
    let place = Place::new();
    let takeovers = std::env::var("TAKEOVERS").map_or(5, |text| text.parse().unwrap());
    let mut server = place.start();
    fill(&server);
    let (seen, addr) = (Seen::default(), server.addr());
    thread::scope(|scope| {
        let clients: Vec<_> = (1..5)
            .map(|seed| {
                scope.spawn({
                    let seen = &seen;
                    move || use_until_told(addr, seed, seen)
                })
            })
            .collect();
        let others = scope.spawn(|| {
            while !seen.stop.load(Ordering::Relaxed) {
                ask_by_udp(place.udp);
                ask_by_unix(&place);
                drop(Wire::try_connect(addr).expect("no connect is refused"));
            }
        });
        for turn in 0..takeovers {
            thread::sleep(Duration::from_millis(150));
            let next =
                place.launch().succeed(&server).unwrap_or_else(|error| panic!("{turn}: {error}"));
            let (is_well, log) = server.wait();
            assert!(is_well && log.contains("takes over"), "takeover {turn}: {log}");
            assert!(next.log().contains("took over 2000 items"), "takeover {turn}: {}", next.log());
            server = next;
        }
        thread::sleep(Duration::from_millis(150));
        seen.stop.store(true, Ordering::Relaxed);
        clients.into_iter().chain([others]).for_each(|client| client.join().unwrap());
    });
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    eprintln!(
        "{takeovers} takeovers: {} gets, all hits, {} sets; {} connections closed, none refused; longest answer {} ms",
        of(&seen.gets),
        of(&seen.sets),
        of(&seen.closed),
        of(&seen.longest_us) / 1000
    );
    assert!(of(&seen.gets) > 1000);
    assert_eq!(server.stat("get_misses"), 0);
    server.end();
    assert!(!place.unix.exists(), "the last one removes the socket's file");
}

/// More threads need more locks of the hash table than a small one has buckets.
#[test]
fn takeovers_with_other_thread_counts_keep_every_item() {
    let place = Place::new();
    let mut server = place.start();
    fill(&server);
    for threads in ["32", "2", "64"] {
        let next = place.launch().args(&["-t", threads]).succeed(&server).unwrap();
        assert!(server.wait().0);
        server = next;
        assert_eq!(server.stat("curr_items"), KEYS as u64, "-t {threads}: {}", server.log());
    }
}

/// The memory was created with 64 MB, and can grow to four times that.
#[test]
fn takeovers_with_another_memory_limit_keep_every_item() {
    let place = Place::new();
    let mut server = place.start();
    fill(&server);
    for megabytes in [256, 32, 128] {
        let limit = megabytes.to_string();
        let next = place.launch().args(&["-m", &limit]).succeed(&server).unwrap();
        assert!(server.wait().0);
        server = next;
        assert_eq!(server.stat("limit_maxbytes"), megabytes << 20);
        assert_eq!(server.stat("curr_items"), KEYS as u64, "-m {limit}: {}", server.log());
    }
    let refused = place.launch().args(&["-m", "257"]).succeed(&server).unwrap_err().to_string();
    assert!(refused.contains("-m is out of its reach"), "{refused}");
    assert_eq!(server.stat("curr_items"), KEYS as u64);
}

#[test]
fn a_failed_takeover_leaves_the_old_server_running() {
    let place = Place::new();
    let mut server = place.start();
    fill(&server);
    let probe = |server: &mut Server, after: &str| {
        server.assert_alive(after);
        ask_by_udp(place.udp);
        ask_by_unix(&place);
        let mut wire = server.connect();
        for number in 0..KEYS {
            wire.send(format!("get k{number}\r\n").as_bytes());
            assert!(wire.read_until(b"END\r\n").len() > 10, "after {after}: k{number} is gone");
        }
    };
    let other = place.launch().args(&["-f", "1.5"]).succeed(&server).unwrap_err().to_string();
    assert!(other.contains("of another format"), "{other}");
    probe(&mut server, "a successor with other settings");

    let busy = Server::holdall(&[]);
    let port = busy.addr().port().to_string();
    let extra = format!("127.0.0.1:{port}");
    let other = place.launch().args(&["-l", &extra]).succeed(&server).unwrap_err().to_string();
    assert!(other.contains("in use"), "{other}");
    probe(&mut server, "a successor that cannot bind");

    // These fail while no server serves: at the first eventfd of a worker.
    for how in ["error=EMFILE", "signal=KILL"] {
        let inject = format!("inject=eventfd2:{how}:when=1");
        let strace =
            ["strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=eventfd2", "-e", &inject];
        let log = place.launch().under(&strace).succeed(&server).unwrap_err().to_string();
        assert!(!log.contains("listening on"), "{log}");
        probe(&mut server, how);
        assert!(server.log().contains("this server continues"), "{how}: {}", server.log());
    }
    // The old server can still hand over.
    let mut next = place.launch().succeed(&server).unwrap();
    assert!(server.wait().0);
    probe(&mut next, "a takeover at last");
}

/// Nobody reads the stderr of a successor in the background.
#[test]
fn the_old_server_logs_the_failure_of_a_successor_in_the_background() {
    let place = Place::new();
    let mut server = place.launch().args(&["-M"]).start();
    let mut wire = server.connect();
    let value = "v".repeat(500_000);
    for number in 0..80 {
        wire.send(format!("set k{number} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
        assert_eq!(wire.read_until(b"\r\n"), b"STORED\r\n");
    }
    let (memory, unix) = (place.memory.to_str().unwrap(), place.unix.to_str().unwrap());
    let status = Command::new(testkit::server::holdall_path())
        .args(["serve", "-e", memory, "-m", "16", "-M", "--takeover", "-d", "-s", unix])
        .args(["-p", &server.addr().port().to_string(), "-l", "127.0.0.1"])
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    eventually("it is logged", || server.log().contains("that cannot be evicted"));
    server.assert_alive("a successor that fails in the background");
}

/// The system does not let the successor bind all addresses of a port while its predecessor listens
/// on one of them.
#[test]
fn a_successor_with_the_wildcard_at_the_same_port_names_the_address_in_its_way() {
    let place = Place::new();
    let mut server = place.start();
    let port = server.addr().port().to_string();
    let metrics = format!("0.0.0.0:{port}");
    let other_port = free_port().to_string();
    for flags in [
        &["-p", &port, "-l", "0.0.0.0"][..],
        &["-p", &other_port, "-l", "127.0.0.1", "--metrics", &metrics],
    ] {
        let memory = place.memory.to_str().unwrap();
        let output = Command::new(testkit::server::holdall_path())
            .args(["serve", "-e", memory, "-m", "64", "--takeover"])
            .args(flags)
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(71), "{log}");
        let want =
            format!("the server to be replaced listens on 127.0.0.1:{port}; a takeover cannot");
        assert!(log.contains(&want), "{log}");
        server.assert_alive("a successor that cannot bind");
    }
}

/// A signal interrupts every second wait for the other side, at both of them.
#[test]
fn interrupted_system_calls_do_not_fail_a_takeover() {
    let interrupted = ["strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=recvmsg"];
    let interrupted = [&interrupted[..], &["-e", "inject=recvmsg:error=EINTR:when=1+2"]].concat();
    let place = Place::new();
    let mut server = place.launch().under(&interrupted).start();
    fill(&server);
    place.launch().under(&failing()).succeed(&server).unwrap_err();
    server.assert_alive("a successor that fails");
    assert!(server.log().contains("this server continues"), "{}", server.log());
    let mut next = place.launch().under(&interrupted).succeed(&server).unwrap();
    let (is_well, log) = server.wait();
    assert!(is_well, "{log}");
    next.assert_alive("a takeover");
    let mut wire = next.connect();
    wire.send(b"get k1\r\n");
    assert!(wire.read_until(b"END\r\n").len() > 10, "k1 is gone");
}

/// A server that must exit during its handover exits after a failed handover.
#[test]
fn a_server_terminated_during_a_failed_handover_exits() {
    let place = Place::new();
    let mut server = place.start();
    fill(&server);
    // The successor fails some time after it received the memory.
    let inject = "inject=eventfd2:error=EMFILE:delay_enter=2000000:when=1";
    let strace = ["strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=eventfd2", "-e", inject];
    thread::scope(|scope| {
        let successor = scope.spawn(|| {
            place.launch().under(&strace).succeed(&server).unwrap_err();
        });
        while !server.log().contains("takes over") {
            assert!(!successor.is_finished(), "{}", server.log());
            thread::sleep(Duration::from_millis(1));
        }
        server.signal(Signal::TERM);
    });
    let (is_well, log) = server.wait();
    assert!(is_well && log.contains("this server continues"), "{log}");
    let next = place.start();
    let log = next.log();
    assert!(log.contains(&format!("took over {KEYS} items")), "{log}");
}

#[test]
fn a_server_is_unchanged_after_a_failed_handover() {
    let place = Place::new();
    let pid_file = std::env::temp_dir().join(format!("e2e-takeover-pid-{}", std::process::id()));
    let flags = ["-P", pid_file.to_str().unwrap(), "-o", "drop_privileges"];
    let mut server = place.launch().args(&flags).start();
    let mut wire = server.connect();
    wire.expect(b"cache_memlimit 100\r\n", b"OK\r\n");
    wire.expect(b"lru_crawler disable\r\nslabs automove 0\r\n", b"OK\r\nOK\r\n");
    place.launch().under(&failing()).succeed(&server).unwrap_err();
    let settings = server.stats("settings");
    for (name, want) in [("maxbytes", "104857600"), ("lru_crawler", "no"), ("slab_automove", "0")] {
        let found = settings.iter().find(|(known, _)| known == name);
        assert_eq!(found.map(|(_, value)| value.as_str()), Some(want), "{name}");
    }
    let pid = std::fs::read_to_string(&pid_file).expect("the pid file");
    assert_eq!(pid.trim(), server.pid().to_string());
    server.signal(Signal::TERM);
    assert!(server.wait().0);
    assert!(!pid_file.exists() && !place.unix.exists(), "{}", place.unix.display());
}

#[test]
fn the_unix_socket_gets_the_mode_of_the_new_server() {
    let place = Place::new();
    let mode = || std::fs::metadata(&place.unix).unwrap().permissions().mode() & 0o777;
    let mut first = place.start();
    fill(&first);
    place.launch().args(&["-a", "0700"]).under(&failing()).succeed(&first).unwrap_err();
    first.assert_alive("a successor that fails");
    assert_eq!(mode(), 0o777);
    let mut second = place.launch().args(&["-a", "0700"]).succeed(&first).unwrap();
    assert!(first.wait().0);
    assert_eq!(mode(), 0o700);
    std::fs::remove_file(&place.unix).unwrap();
    let third = place.launch().args(&["-a", "0750"]).succeed(&second).unwrap();
    assert!(second.wait().0);
    assert_eq!(mode(), 0o750);
    ask_by_unix(&place);
    drop(third);
}

/// Fails while no server serves: at the first eventfd of a worker.
fn failing() -> [&'static str; 9] {
    let inject = "inject=eventfd2:error=EMFILE:when=1";
    ["strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=eventfd2", "-e", inject]
}

/// A user who may create a file next to the memory file can listen there, and could hand over other
/// sockets and another memory.
#[test]
fn another_users_server_is_not_taken_over() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: only root can start servers of two users");
        return;
    }
    let place = Place::new();
    let mut server = place.launch().args(&["-u", "nobody"]).start();
    fill(&server);
    let refusal = place.launch().args(&["-u", "daemon"]).succeed(&server).unwrap_err().to_string();
    assert!(refusal.contains("belongs to another user"), "{refusal}");
    server.assert_alive("a successor of another user");
    let mut next = place.launch().args(&["-u", "nobody"]).succeed(&server).unwrap();
    assert!(server.wait().0);
    next.assert_alive("a takeover by the same user");
}

/// A server accepts clients slightly before it creates the socket for takeovers.
fn wait_for_takeover_socket(server: &Server) {
    server.wait_for_log("listening on");
}

/// A running server's reply to a request for its sockets.
fn ask_to_take_over(place: &Place, hello: &str) -> String {
    let path = format!("{}.takeover", place.memory.display());
    let (family, kind) = (net::AddressFamily::UNIX, net::SocketType::SEQPACKET);
    let socket = net::socket(family, kind, None).unwrap();
    net::connect(&socket, &net::SocketAddrUnix::new(path).unwrap()).unwrap();
    net::send(&socket, hello.as_bytes(), net::SendFlags::NOSIGNAL).unwrap();
    let mut answer = vec![0; 1000];
    let (_, len) = net::recv(&socket, &mut answer[..], net::RecvFlags::empty()).unwrap();
    String::from_utf8_lossy(&answer[..len]).into_owned()
}

/// This holds even if the file's mode lets another user connect.
#[test]
fn another_user_gets_no_sockets() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: only root can become another user");
        return;
    }
    let place = Place::new();
    let mut server = place.launch().args(&["-u", "nobody"]).start();
    fill(&server);
    wait_for_takeover_socket(&server);
    let socket = format!("{}.takeover", place.memory.display());
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).unwrap();
    let answer = thread::scope(|scope| {
        let other = scope.spawn(|| {
            // Applies only to this thread.
            let daemon = rustix::process::Uid::from_raw(1);
            rustix::thread::set_thread_res_uid(daemon, daemon, daemon).unwrap();
            ask_to_take_over(&place, "holdall takeover")
        });
        other.join().unwrap()
    });
    assert_eq!(answer, "the running server belongs to another user");
    server.assert_alive("a request of another user");
    let mut next = place.launch().args(&["-u", "nobody"]).succeed(&server).unwrap();
    let (is_well, log) = server.wait();
    assert!(is_well && log.contains("no takeover: another user asked"), "{log}");
    next.assert_alive("a takeover by the same user");
}

#[test]
fn a_successor_of_another_version_is_refused() {
    let place = Place::new();
    let mut server = place.start();
    wait_for_takeover_socket(&server);
    for hello in ["", "holdall", "give me your sockets"] {
        let answer = ask_to_take_over(&place, hello);
        // An empty message looks like the end of the conversation.
        let want =
            if hello.is_empty() { "" } else { "the running server speaks another version of this" };
        assert_eq!(answer, want, "{hello:?}");
        server.assert_alive(hello);
    }
    let _next = place.launch().succeed(&server).unwrap();
    assert!(server.wait().0);
}

#[test]
fn a_takeover_requires_a_running_server() {
    let place = Place::new();
    let gone = place.start();
    let port = gone.addr();
    let other = Server::holdall(&[]);
    drop(gone);
    let log = place.launch().succeed(&other).unwrap_err().to_string();
    assert!(log.contains("cannot connect to the running server"), "{log} ({port})");
    let holdall = testkit::server::holdall_path();
    let output = Command::new(holdall).args(["serve", "--takeover"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
}
