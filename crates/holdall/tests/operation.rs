//! A server under an operator's control: started, signalled, ended.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use common::{Running, SOON, Scratch, exists, holdall, is_root, kill, memcached, output};
use rustix::process::Signal;
use testkit::eventually;

const VERSION: (&[u8], &[u8]) = (b"version\r\n", b"VERSION 1.6.45\r\n");

#[test]
fn the_pid_file_lives_as_long_as_the_server() {
    let scratch = Scratch::new();
    let running = Running::serve(&["-P", &scratch.text("pid")]);
    eventually("the pid file", || exists(&scratch.path("pid")));
    let text = fs::read_to_string(scratch.path("pid")).unwrap();
    assert_eq!(text, format!("{}\n", running.pid()));
    running.end();
    assert!(!exists(&scratch.path("pid")));
}

#[test]
fn a_pid_file_that_cannot_be_written_is_a_warning() {
    let running = Running::serve(&["-P", "/nonexistent/pid"]);
    running.connect().expect(VERSION.0, VERSION.1);
    let log = running.end();
    assert!(log.contains("warning: cannot write the pid file /nonexistent/pid"), "{log}");
}

#[test]
fn minus_d_starts_a_daemon_in_a_new_session() {
    let scratch = Scratch::new();
    let ports = scratch.path("ports");
    let pid_file = scratch.text("pid");
    let started = output(
        holdall(&["serve", "-d", "-p", "-1", "-P", &pid_file])
            .env("MEMCACHED_PORT_FILENAME", &ports),
    );
    assert!(started.status.success(), "{started:?}");
    eventually("the pid file", || exists(&scratch.path("pid")));
    let pid: u32 = fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
    let port: u16 = fs::read_to_string(&ports)
        .unwrap()
        .trim_start_matches("TCP INET: ")
        .trim()
        .parse()
        .unwrap();

    testkit::Wire::connect(([127, 0, 0, 1], port).into()).expect(VERSION.0, VERSION.1);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(session, pid.to_string(), "not the leader of a session");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));

    kill(pid, Signal::TERM);
    eventually("the end", || !exists(&scratch.path("pid")));
}

#[test]
fn minus_d_reports_errors_before_daemonizing() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert_eq!(output(&mut holdall(&["serve", "-d", "-p", &port])).status.code(), Some(71));
}

/// Replies to requests that were read before SIGTERM arrive whole, though they do not fit the
/// socket's buffers and the client reads them afterwards; meanwhile nobody new is let in.
#[test]
fn sigterm_finishes_read_requests_and_refuses_connections() {
    let value = vec![b'v'; 500_000];
    let mut running = Running::serve(&[]);
    let mut wire = running.connect();
    let header = format!("set k 0 0 {}\r\n", value.len());
    wire.expect(&[header.as_bytes(), &value, b"\r\n"].concat(), b"STORED\r\n");
    wire.send("get k\r\n".repeat(40).as_bytes());
    let reply =
        [format!("VALUE k 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat();
    assert!(wire.read_exact(reply.len()) == reply, "the first reply");

    let port = running.port("TCP INET");
    running.signal(Signal::TERM);
    eventually("the listener's end", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(running.is_running(), "it ended with replies unsent");
    for number in 2..=40 {
        assert!(wire.read_exact(reply.len()) == reply, "reply {number}");
    }
    let (rest, _) = wire.read_to_end(SOON);
    assert!(rest.is_empty());
    assert!(running.wait().success());
}

/// A client that never reads delays the end by the server's patience, not for ever; a second signal
/// ends it at once.
#[test]
fn a_stuck_client_cannot_block_the_shutdown() {
    let ended_after = |second: bool| {
        let value = vec![b'v'; 500_000];
        let mut running = Running::serve(&[]);
        let mut wire = running.connect();
        let header = format!("set k 0 0 {}\r\n", value.len());
        wire.expect(&[header.as_bytes(), &value, b"\r\n"].concat(), b"STORED\r\n");
        wire.send("get k\r\n".repeat(40).as_bytes());
        wire.read_exact(1);
        let begun = Instant::now();
        running.signal(Signal::TERM);
        eventually("the signal's line", || running.log().contains("SIGTERM: ending"));
        if second {
            running.signal(Signal::INT);
        }
        assert!(running.wait().success());
        begun.elapsed()
    };
    let (at_once, patient) = (ended_after(true), ended_after(false));
    assert!(at_once < patient && patient >= Duration::from_secs(4), "{at_once:?}, {patient:?}");
}

/// Replies that nobody takes, small and copied or large and sent from where they lie, cost their
/// connection; it is counted.
#[test]
fn a_client_that_stops_reading_is_dropped_and_counted() {
    let running = Running::serve(&["-t", "1", "-o", "stall_timeout=1"]);
    let mut wire = running.connect();
    for (key, len) in [("small", 10_000), ("large", 900_000)] {
        let set =
            [format!("set {key} 0 0 {len}\r\n").into_bytes(), vec![b'v'; len], b"\r\n".to_vec()];
        wire.expect(&set.concat(), b"STORED\r\n");
    }
    let kicked = |wire: &mut testkit::Wire| {
        wire.send(b"stats\r\n");
        let stats = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
        let number = stats.lines().find_map(|line| line.strip_prefix("STAT slow_kicks "));
        number.unwrap().parse::<u32>().unwrap()
    };
    let silent: Vec<_> = [&b"get small\r\n"[..], b"get large\r\n", b"mg large v\r\n"]
        .into_iter()
        .map(|request| {
            let mut silent = running.connect();
            silent.send(&request.repeat(2000));
            silent
        })
        .collect();
    assert_eq!(kicked(&mut wire), 0, "before its time");
    let begun = Instant::now();
    eventually("the silent to be dropped", || kicked(&mut wire) == 3);
    assert!(begun.elapsed() > Duration::from_millis(500), "{:?}", begun.elapsed());
    wire.expect(b"get none\r\n", b"END\r\n");
    drop(silent);
}

#[test]
fn commands_are_printed_only_at_vv() {
    let running = Running::serve(&[]);
    running.connect().expect(b"set quiet 0 0 1\r\nx\r\n", b"STORED\r\n");
    running.connect().expect(b"verbosity 2\r\n", b"OK\r\n");
    running.connect().expect(b"set loud 0 0 6\r\nsecret\r\nget a\x01b c\r\n", b"STORED\r\nEND\r\n");
    eventually("the get's line", || running.log().contains(" get a\\x01b c\n"));
    let log = running.log();
    assert!(
        log.contains(" set loud 0 0 6\n") && !log.contains("secret") && !log.contains("quiet"),
        "{log}"
    );
}

#[test]
fn termination_signals_end_the_server_and_sighup_does_not() {
    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let mut running = Running::serve(&[]);
        running.connect().expect(VERSION.0, VERSION.1);
        running.signal(Signal::HUP);
        eventually("SIGHUP's line", || running.log().contains("SIGHUP: reading files again"));
        running.connect().expect(VERSION.0, VERSION.1);
        running.signal(signal);
        assert!(running.wait().success(), "{signal:?}: {}", running.log());
    }
}

#[test]
fn the_shutdown_command_ends_it_only_when_enabled() {
    let mut running = Running::serve(&["-A"]);
    running.connect().send(b"shutdown\r\n");
    assert!(running.wait().success());
    let mut running = Running::serve(&["-A"]);
    running.connect().send(b"shutdown graceful\r\n");
    assert!(running.wait().success());
    let running = Running::serve(&[]);
    let mut wire = running.connect();
    wire.expect(b"shutdown\r\n", b"SERVER_ERROR: shutdown not enabled\r\n");
    wire.expect(VERSION.0, VERSION.1);
}

#[test]
fn a_unix_socket_has_mode_and_owner_and_is_removed_at_exit() {
    let scratch = Scratch::new();
    let path = scratch.path("sock");
    let running = Running::serve(&["-s", path.to_str().unwrap(), "-a", "0640"]);
    let found = path.symlink_metadata().unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o640);
    let uid: u32 =
        running.proc_line("status", "Uid:").split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(found.uid(), uid);

    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(VERSION.0).unwrap();
    let mut reply = vec![0; VERSION.1.len()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply, VERSION.1);
    drop(stream);
    let log = running.end();
    assert!(!log.contains("tcp:"), "TCP stayed on: {log}");
    assert!(!exists(&path));
}

/// A killed server leaves its socket behind; the next one replaces it.
#[test]
fn a_stale_unix_socket_is_replaced() {
    let scratch = Scratch::new();
    let path = scratch.text("sock");
    let mut killed = Running::serve(&["-s", &path]);
    killed.signal(Signal::KILL);
    killed.wait();
    assert!(exists(&scratch.path("sock")));
    let running = Running::serve(&["-s", &path, "-o", "keep_tcp"]);
    UnixStream::connect(&path).unwrap();
    running.connect().expect(VERSION.0, VERSION.1);
    running.end();
}

#[test]
fn the_port_file_has_memcacheds_format() {
    let running = Running::start(memcached(&[
        "-p",
        "-1",
        "-U",
        "-1",
        "-l",
        "127.0.0.1,[::1]",
        "-u",
        "nobody",
    ]));
    for kind in ["TCP INET", "TCP INET6", "UDP INET", "UDP INET6"] {
        assert_ne!(running.port(kind), 0, "{kind}");
    }
    running.connect().expect(VERSION.0, VERSION.1);
}

/// Root drops its rights: all of its ids, its groups, and its write access.
#[test]
fn root_becomes_the_named_user_or_nobody() {
    let nobody = fs::read_to_string("/etc/passwd").unwrap();
    let nobody = nobody.lines().find_map(|line| line.strip_prefix("nobody:x:")).unwrap().to_owned();
    let own = rustix::process::getuid().as_raw().to_string();
    let want = if is_root() { nobody.split(':').next().unwrap() } else { &own };
    let want = [want; 4].join("\t");
    for arguments in [&["-u", "nobody"][..], &[]] {
        let running = Running::serve(arguments);
        assert_eq!(running.proc_line("status", "Uid:"), want);
        if is_root() {
            assert_eq!(running.proc_line("status", "Groups:"), "");
            assert_eq!(running.proc_line("status", "CapEff:"), "0000000000000000");
        }
        running.end();
    }
}

/// A reply is at most 32 times its request by default: a forged sender gains little.
#[test]
fn a_udp_reply_is_bounded_by_its_request() {
    let ask = |arguments: &[&str]| -> Vec<u8> {
        let running = Running::serve(&[&["-U", "-1"], arguments].concat());
        let value = "v".repeat(2000);
        running
            .connect()
            .expect(format!("set k 0 0 2000\r\n{value}\r\n").as_bytes(), b"STORED\r\n");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.connect(("127.0.0.1", running.port("UDP INET"))).unwrap();
        socket.send(b"\x12\x34\0\0\0\x01\0\0get k\r\n").unwrap();
        let (mut whole, mut datagram) = (Vec::new(), [0; 2000]);
        loop {
            let len = socket.recv(&mut datagram).unwrap();
            assert_eq!(datagram[..2], *b"\x12\x34");
            whole.extend_from_slice(&datagram[8..len]);
            if datagram[3] + 1 == datagram[5] {
                return whole;
            }
        }
    };
    assert_eq!(ask(&[]), b"SERVER_ERROR reply too large for UDP\r\n");
    let want = format!("VALUE k 0 2000\r\n{}\r\nEND\r\n", "v".repeat(2000));
    assert_eq!(ask(&["-o", "udp_amplification=0"]), want.as_bytes());
    assert_eq!(ask(&["-o", "udp_amplification=400"]), want.as_bytes());
}

#[test]
fn workers_are_bound_to_their_cpus() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).rfind(|&cpu| allowed.is_set(cpu)).unwrap();
    let running = Running::serve(&["-t", "2", "-o", &format!("affinity={cpu}")]);
    // The ports are known before the workers run; nobody is answered before all of them do.
    running.connect().expect(VERSION.0, VERSION.1);
    let mut bound = 0;
    for task in fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap() {
        let task: u32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let name = common::proc_line(task, "status", "Name:");
        if name.starts_with("worker-") {
            assert_eq!(common::proc_line(task, "status", "Cpus_allowed_list:"), cpu.to_string());
            bound += 1;
        }
    }
    assert_eq!(bound, 2);
    let refused = output(&mut holdall(&["serve", "-p", "-1", "-o", "affinity=1023"]));
    assert_eq!(refused.status.code(), Some(64));
}

/// `-k` either locks what is in use, and no more, or says that it could not.
#[test]
fn minus_k_locks_only_memory_in_use() {
    let running = Running::serve(&["-k", "-m", "512"]);
    running.connect().expect(VERSION.0, VERSION.1);
    let kib = |name| -> u64 {
        running.proc_line("status", name).trim_end_matches(" kB").trim().parse().unwrap()
    };
    let (locked, resident) = (kib("VmLck:"), kib("VmRSS:"));
    if !running.log().contains("-k: memory is not locked") {
        assert!(locked > 0, "nothing is locked");
    }
    assert!(resident < 64 << 10, "{resident} KiB are resident of an empty cache");
}

#[test]
fn a_connection_limit_raises_the_file_limit() {
    let running = Running::serve(&["-c", "2000"]);
    let limit = running.proc_line("limits", "Max open files");
    let soft: u64 = limit.split_whitespace().next().unwrap().parse().unwrap();
    assert!(soft > 2000, "{limit}");
}

#[test]
fn the_service_manager_is_notified_of_start_and_stop() {
    let scratch = Scratch::new();
    let path = scratch.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    manager.set_read_timeout(Some(SOON)).unwrap();
    let mut command = holdall(&["serve", "-p", "-1"]);
    command.env("NOTIFY_SOCKET", &path);
    let running = Running::start(command);
    let mut buffer = [0; 64];
    let heard = manager.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..heard], b"READY=1\n");
    running.connect().expect(VERSION.0, VERSION.1);
    running.end();
    let heard = manager.recv(&mut buffer).unwrap();
    // systemd waits as long as the end may take, whatever the unit says.
    assert_eq!(&buffer[..heard], b"STOPPING=1\nEXTEND_TIMEOUT_USEC=15000000\n");
}

#[test]
fn debians_configuration_file_starts_a_server() {
    let scratch = Scratch::new();
    let text = format!(
        "# memcached default config file\n-d\nlogfile /var/log/memcached.log\n-m 64\n-p 11211\n-u nobody\n\
         -l 127.0.0.1\n-P {}\n",
        scratch.text("pid")
    );
    fs::write(scratch.path("memcached.conf"), text).unwrap();
    let running = Running::serve(&["--config", &scratch.text("memcached.conf"), "-o", "modern"]);
    running.connect().expect(VERSION.0, VERSION.1);
    eventually("the pid file", || exists(&scratch.path("pid")));
    let log = running.end();
    assert!(log.contains("-o modern has no effect here"), "{log}");
    assert!(log.contains("'logfile' has no effect here"), "{log}");
}
