//! Deletes through the proxy while a server is unavailable: acknowledged deletes are executed,
//! whatever happens to the proxy.
//!
//! `ROUNDS` is the number of rounds of the tests that kill processes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::folder::Folder;
use testkit::rng::seed_from_env;
use testkit::wire::End;
use testkit::{FaultProxy, Kind, Launch, Mode, Rng, Router, Server, Wire, router};

/// Short timeouts keep the tests short.
const QUICK: [&str; 6] = ["-t", "500", "-r", "10", "--probe-timeout-max", "20"];

/// A server behind a fault proxy, and a proxy before it that keeps failed deletes.
struct Rig {
    server: Server,
    fault_proxy: FaultProxy,
    proxy: Router,
    folder: Folder,
}

impl Rig {
    fn new(folder: Folder, args: &[&str]) -> Self {
        let server = Launch::new(Kind::Holdall).start();
        let fault_proxy = FaultProxy::before(server.addr());
        let config = router::config(&[fault_proxy.addr()], r#""PoolRoute|A""#);
        let args: Vec<&str> =
            QUICK.iter().chain(&["-a", folder.name()]).chain(args).copied().collect();
        let proxy = Router::start(&config, &args);
        Self { server, fault_proxy, proxy, folder }
    }

    fn store(&self, keys: &[String]) {
        let mut wire = self.server.connect();
        let sets: String =
            keys.iter().map(|key| format!("set {key} 0 0 1 noreply\r\nx\r\n")).collect();
        wire.expect(format!("{sets}mn\r\n").as_bytes(), b"MN\r\n");
    }

    /// The given keys that the server still has.
    fn left(&self, keys: &[String]) -> Vec<String> {
        let mut wire = self.server.connect();
        let gets: String = keys.iter().map(|key| format!("mg {key} k\r\n")).collect();
        wire.send(format!("{gets}mn\r\n").as_bytes());
        let answers = String::from_utf8(wire.read_until(b"MN\r\n")).unwrap();
        answers.lines().filter_map(|line| Some(line.strip_prefix("HD k")?.to_owned())).collect()
    }
}

/// Deletes these keys one after the other and returns those with an acknowledged delete. Reconnects
/// if the proxy closes the connection.
fn delete(addr: SocketAddr, keys: &[String]) -> Vec<String> {
    let mut acknowledged = Vec::new();
    let mut wire = None;
    for key in keys {
        let connection = match &mut wire {
            Some(wire) => wire,
            None => wire.insert(loop {
                match Wire::try_connect(addr) {
                    Ok(wire) => break wire,
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }),
        };
        let sent = connection.try_send(format!("delete {key}\r\n").as_bytes());
        let (line, end) = match sent {
            Ok(()) => connection.read_until_or_end(b"\r\n", Duration::from_secs(20)),
            Err(_) => (Vec::new(), End::Closed),
        };
        match (&line[..], end) {
            (b"DELETED\r\n" | b"NOT_FOUND\r\n", End::Found) => acknowledged.push(key.clone()),
            (_, End::Closed | End::Reset) => wire = None,
            (other, end) => panic!("{key}: {} {end:?}", other.escape_ascii()),
        }
    }
    acknowledged
}

fn keys(round: u64, part: usize, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("round{round}:{part}:{number}")).collect()
}

#[test]
fn a_killed_proxy_loses_no_acknowledged_delete() {
    let rounds = rounds();
    let mut rng = Rng::new(seed_from_env());
    let mut rig = Rig::new(Folder::new("deletes-killed"), &[]);
    let (mut acknowledged, mut kills, mut asked) = (0, 0, 0);
    for round in 0..rounds {
        let parts: Vec<_> = (0..3).map(|part| keys(round, part, 200)).collect();
        parts.iter().for_each(|keys| rig.store(keys));
        rig.fault_proxy.set(Mode::Refuse);
        let addr = rig.proxy.addr();
        let clients: Vec<_> = parts
            .into_iter()
            .map(|keys| thread::spawn(move || (delete(addr, &keys), keys.len())))
            .collect();
        thread::sleep(Duration::from_micros(rng.below(30_000) as u64));
        rig.proxy.kill_and_restart();
        let mut deleted = Vec::new();
        for client in clients {
            let (keys, count) = client.join().unwrap();
            deleted.extend(keys);
            asked += count;
        }
        rig.fault_proxy.set(Mode::Open);
        kills += 1;
        if rng.one_in(2) {
            // In the middle of the replay, or at its end.
            thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
            rig.proxy.kill_and_restart();
            kills += 1;
        }
        rig.proxy.wait_for("asynclog_pending", 0);
        let left = rig.left(&deleted);
        assert!(left.is_empty(), "round {round} of {rounds}: {left:?} were acknowledged");
        acknowledged += deleted.len();
    }
    assert_eq!(rig.proxy.stat("asynclog_lost"), 0);
    assert!(acknowledged > 0, "each kill came before anything was acknowledged");
    println!(
        "{rounds} rounds, {kills} kills, {asked} deletes, {acknowledged} acknowledged, 0 lost"
    );
}

fn rounds() -> u64 {
    env::var("ROUNDS").map_or(8, |rounds| rounds.parse().unwrap())
}

/// The same for an application with the library: killed while it deletes, started again, and
/// perhaps killed during the replay.
#[test]
fn a_killed_application_loses_no_acknowledged_delete() {
    let (rounds, mut rng) = (rounds(), Rng::new(seed_from_env()));
    let server = Launch::new(Kind::Holdall).start();
    let fault_proxy = FaultProxy::before(server.addr());
    let folder = Folder::new("deletes-library");
    let address = fault_proxy.addr().to_string();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deleter"));
        command.args([folder.name(), &address]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let (mut acknowledged, mut asked) = (0, 0);
    for round in 0..rounds {
        let keys = keys(round, 9, 300);
        let mut wire = server.connect();
        for key in &keys {
            wire.expect(format!("set {key} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
        }
        fault_proxy.set(Mode::Refuse);
        let mut child = start();
        let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
        // The process may be killed before it has read everything.
        let mut input = child.stdin.take().unwrap();
        let feeding = thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = 1 + rng.below(250);
        let mut deleted: Vec<String> = (&mut lines).take(wanted).map_while(Result::ok).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        // Output from before the kill counts as well; a truncated line does not.
        deleted.extend(lines.map_while(Result::ok).filter(|line| keys.contains(line)));
        feeding.join().unwrap();
        asked += keys.len();
        acknowledged += deleted.len();
        fault_proxy.set(Mode::Open);
        if rng.one_in(2) {
            let mut child = start();
            thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        // This process receives no input, and ends when all kept deletes are executed.
        let mut last = start();
        drop(last.stdin.take());
        assert!(last.wait().unwrap().success());
        let gets: String = deleted.iter().map(|key| format!("mg {key} k\r\n")).collect();
        wire.send(format!("{gets}mn\r\n").as_bytes());
        let answers = String::from_utf8(wire.read_until(b"MN\r\n")).unwrap();
        let left = answers.lines().filter(|line| line.starts_with("HD")).collect::<Vec<_>>();
        assert!(left.is_empty(), "round {round} of {rounds}: {left:?} were acknowledged");
    }
    assert!(acknowledged as u64 >= rounds, "every round waits for one");
    println!("{rounds} rounds, {asked} deletes, {acknowledged} acknowledged, 0 lost");
}

#[test]
fn deletes_are_kept_reported_and_replayed() {
    let rig = Rig::new(Folder::new("deletes-kept"), &[]);
    let keys = keys(0, 0, 300);
    rig.store(&keys);
    rig.fault_proxy.set(Mode::Refuse);
    assert_eq!(delete(rig.proxy.addr(), &keys[..250]).len(), 250);
    let mut wire = rig.proxy.connect();
    // This includes quiet deletes and those of the meta protocol.
    wire.expect(
        format!("delete {} noreply\r\nmd {}\r\nmd {} q\r\nmn\r\n", keys[250], keys[251], keys[252])
            .as_bytes(),
        b"NF\r\nNF\r\nMN\r\n",
    );
    // Only deletes are kept.
    wire.expect(b"set k 0 0 1\r\nx\r\n", b"SERVER_ERROR Server unavailable. Reason: tko\r\n");
    assert_eq!(
        (rig.proxy.stat("asynclog_requests"), rig.proxy.stat("asynclog_pending")),
        (253, 253)
    );
    let shown = Command::new(testkit::server::holdall_path())
        .args(["spool", "--format", "as1", rig.folder.name()])
        .output()
        .unwrap();
    let lines = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(lines.lines().count(), 253, "{lines}");
    let addr = rig.fault_proxy.addr();
    assert!(
        lines.contains(&format!(
            r#""C",["{}",{},"delete {}\r\n"]]"#,
            addr.ip(),
            addr.port(),
            keys[0]
        )),
        "{lines}"
    );
    rig.fault_proxy.set(Mode::Open);
    rig.proxy.wait_for("asynclog_pending", 0);
    assert_eq!(rig.left(&keys), keys[253..]);
    assert_eq!((rig.proxy.stat("asynclog_replayed"), rig.proxy.stat("asynclog_bytes")), (253, 0));
}

/// Sends a packet that deletes `k` with this reserved field; returns the status of the reply.
fn packet(wire: &mut Wire, reserved: u16) -> u16 {
    let mut header = vec![0x80, 0x04, 0, 1, 0, 0];
    header.extend(reserved.to_be_bytes());
    header.extend([0, 0, 0, 1]);
    header.extend([0; 12]);
    header.push(b'k');
    wire.send(&header);
    let answer = wire.read_exact(24);
    let body = u32::from_be_bytes(answer[8..12].try_into().unwrap());
    let _ = wire.read_exact(usize::try_from(body).unwrap());
    u16::from_be_bytes([answer[6], answer[7]])
}

/// In all three protocols, for clients that ask for it; other clients read the usual replies.
#[test]
fn a_client_can_distinguish_kept_from_executed_deletes() {
    const KEPT: &[u8] = b"SERVER_ERROR kept for later\r\n";
    let rig = Rig::new(Folder::new("deletes-executed"), &[]);
    let store = || rig.store(&["k".to_owned()]);
    let (mut text, mut binary) = (rig.proxy.connect(), rig.proxy.connect());
    store();
    text.expect(b"delete k executed\r\n", b"DELETED\r\n");
    text.expect(b"delete k executed\r\n", b"NOT_FOUND\r\n");
    store();
    text.expect(b"md k Pexecuted\r\n", b"HD\r\n");
    text.expect(b"md k q Pexecuted\r\nmn\r\n", b"NF\r\nMN\r\n");
    store();
    assert_eq!([packet(&mut binary, 0x6578), packet(&mut binary, 0x6578)], [0, 1]);
    rig.fault_proxy.set(Mode::Refuse);
    store();
    for (asked, said) in [
        (&b"delete k\r\n"[..], &b"NOT_FOUND\r\n"[..]),
        (b"delete k executed\r\n", KEPT),
        (b"delete k 0 executed\r\n", KEPT),
        (b"md k\r\n", b"NF\r\n"),
        (b"md k Pexecuted\r\n", KEPT),
        (b"md k Pother\r\n", b"NF\r\n"),
        (b"md k q Pexecuted\r\nmn\r\n", b"SERVER_ERROR kept for later\r\nMN\r\n"),
        (b"md aw== b Pexecuted\r\n", KEPT),
    ] {
        text.expect(asked, said);
    }
    assert_eq!([packet(&mut binary, 0), packet(&mut binary, 0x6578)], [1, 0x86]);
    // A delete that must not be kept fails with the server's own error, and leaves no record.
    text.send(b"md k Pnow\r\n");
    let said = text.line();
    assert!(said.starts_with("SERVER_ERROR ") && said != "SERVER_ERROR kept for later", "{said}");
    assert_eq!(rig.proxy.stat("asynclog_requests"), 10);
    rig.fault_proxy.set(Mode::Open);
    rig.proxy.wait_for("asynclog_pending", 0);
    assert_eq!(rig.left(&["k".to_owned()]), [""; 0]);
}

/// A server comes back while the proxy that keeps a delete for it is dead, and another proxy runs.
#[test]
fn no_proxy_trusts_a_server_that_missed_deletes() {
    for peers in [Kind::Holdall, Kind::Memcached] {
        believed_by_no_other(peers, |pool| router::config(pool, r#""PoolRoute|all""#));
    }
}

/// Servers of another pool store its mark, even if no route uses that pool.
#[test]
fn no_proxy_trusts_a_single_server_pool_that_missed_deletes() {
    believed_by_no_other(Kind::Holdall, |servers| {
        let [alone, others @ ..] = servers else { panic!("no server") };
        let others: Vec<_> = others.iter().map(|addr| format!("\"{addr}\"")).collect();
        format!(
            r#"{{"pools": {{"alone": {{"servers": ["{alone}"]}}, "others": {{"servers": [{}]}}}},
                "route": "PoolRoute|alone"}}"#,
            others.join(", ")
        )
    });
}

/// One proxy's path to the server is cut, and those of the others are not: for them, the same name
/// has another address.
#[test]
fn no_proxy_trusts_a_server_that_another_proxy_cannot_reach() {
    let server = Launch::new(Kind::Holdall).start();
    let others: Vec<_> = (0..2).map(|_| Launch::new(Kind::Holdall).start()).collect();
    let port = server.addr().port();
    let relayed = SocketAddr::from(([127, 0, 0, 2], port));
    let fault_proxy = FaultProxy::at(relayed, server.addr());
    let config = format!(
        r#"{{"pools": {{"alone": {{"servers": ["alone.test:{port}"]}},
                       "others": {{"servers": ["{}", "{}"]}}}}, "route": "PoolRoute|alone"}}"#,
        others[0].addr(),
        others[1].addr()
    );
    let folders = ["a", "b", "c"].map(|name| Folder::new(&format!("deletes-cut-{name}")));
    let start = |folder: &Folder, addr: SocketAddr, more: &[&str]| {
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, format!("{} alone.test\n", addr.ip())).unwrap();
        let script = format!("mount --bind {} /etc/hosts && exec \"$@\"", hosts.display());
        let within = ["unshare", "--map-root-user", "--mount", "sh", "-c", &script, "sh"];
        // No short timeout: a refused connection fails at once, and no other server is late.
        let quick = ["-r", "10", "--probe-timeout-max", "20", "-a", folder.name()];
        Router::under(&within, &config, &[&quick[..], more].concat())
    };
    let writer = start(&folders[0], relayed, &[]);
    let reader = start(&folders[1], server.addr(), &[]);
    let trusting = start(&folders[2], server.addr(), &["--asynclog-hold-gets=false"]);
    let old = b"VALUE k 0 3\r\nold\r\nEND\r\n";
    for proxy in [&writer, &reader, &trusting] {
        let mut wire = proxy.connect();
        wire.expect(b"set k 0 0 3\r\nold\r\n", b"STORED\r\n");
        wire.expect(b"get k\r\n", old);
    }
    fault_proxy.set(Mode::Refuse);
    assert_eq!(delete(writer.addr(), &["k".to_owned()]).len(), 1);
    reader.wait_for("asynclog_marked", 1);
    let (mut wire, mut unheld) = (reader.connect(), trusting.connect());
    // Longer than the lifetime of a mark that is not renewed.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        wire.send(b"get k\r\n");
        let said = wire.line();
        assert!(said.starts_with("SERVER_ERROR"), "{said}");
        // The request reaches the server, which has the old value.
        wire.expect(b"add k 0 0 1\r\nx\r\n", b"NOT_STORED\r\n");
        unheld.expect(b"get k\r\n", old);
        thread::sleep(Duration::from_millis(20));
    }
    fault_proxy.set(Mode::Open);
    writer.wait_for("asynclog_pending", 0);
    reader.wait_for("asynclog_marked", 0);
    wire.expect(b"get k\r\n", b"END\r\n");
}

fn believed_by_no_other(kind: Kind, config: impl Fn(&[SocketAddr]) -> String) {
    let folders = [Folder::new("deletes-mark-a"), Folder::new("deletes-mark-b")];
    let server = Launch::new(kind).start();
    let others: Vec<_> = (0..2).map(|_| Launch::new(kind).start()).collect();
    let fault_proxy = FaultProxy::before(server.addr());
    let config = config(&[fault_proxy.addr(), others[0].addr(), others[1].addr()]);
    let start = |folder: &Folder| {
        let args: Vec<&str> = QUICK.iter().chain(&["-a", folder.name()]).copied().collect();
        Router::start(&config, &args)
    };
    let (mut writer, reader) = (start(&folders[0]), start(&folders[1]));
    assert_eq!(reader.stat("asynclog_unmarkable"), 0);
    let mut wire = reader.connect();
    let is_there = |key: &String| {
        let mut wire = reader.connect();
        wire.expect(format!("set {key} 0 0 3\r\nold\r\n").as_bytes(), b"STORED\r\n");
        let mut wire = server.connect();
        wire.send(format!("get {key}\r\n").as_bytes());
        wire.line().starts_with("VALUE")
    };
    let key = (0..).map(|number| format!("k{number}")).find(is_there).unwrap();
    fault_proxy.set(Mode::Refuse);
    assert_eq!(delete(writer.addr(), std::slice::from_ref(&key)).len(), 1);
    reader.wait_for("asynclog_marked", 1);
    writer.kill();
    fault_proxy.set(Mode::Open);
    let get = format!("get {key}\r\n");
    let add = format!("add {key} 0 0 1\r\nx\r\n");
    let mut reached = 0;
    while reached < 50 {
        wire.send(get.as_bytes());
        let said = wire.line();
        assert!(said.starts_with("SERVER_ERROR"), "{kind:?}: {said}");
        // The request reached the server, which has the value.
        wire.send(add.as_bytes());
        reached += u32::from(wire.line() == "NOT_STORED");
    }
    writer.restart();
    writer.wait_for("asynclog_pending", 0);
    reader.wait_for("asynclog_marked", 0);
    wire.expect(get.as_bytes(), b"END\r\n");
}

/// The server may have the values that the dropped deletes were for.
#[test]
fn a_server_with_expired_deletes_is_flushed() {
    let rig = Rig::new(Folder::new("deletes-old"), &["--asynclog-max-age", "1"]);
    let keys = keys(0, 0, 3);
    rig.store(&keys);
    rig.fault_proxy.set(Mode::Refuse);
    assert_eq!(delete(rig.proxy.addr(), &keys[..1]).len(), 1);
    // Ages are in whole seconds.
    thread::sleep(Duration::from_millis(2500));
    rig.fault_proxy.set(Mode::Open);
    rig.proxy.wait_for("asynclog_replayed", 1);
    assert_eq!((rig.proxy.stat("asynclog_expired"), rig.left(&keys)), (1, Vec::new()));
}

#[test]
fn a_black_hole_delays_deletes_without_loss() {
    let rig = Rig::new(Folder::new("deletes-hole"), &[]);
    let keys = keys(0, 0, 20);
    rig.store(&keys);
    rig.fault_proxy.set(Mode::BlackHole);
    assert_eq!(delete(rig.proxy.addr(), &keys).len(), 20);
    // The black hole does not pass on the bytes that it swallowed.
    rig.fault_proxy.set(Mode::Reset);
    assert_eq!(rig.left(&keys).len(), 20);
    rig.fault_proxy.set(Mode::Open);
    rig.proxy.wait_for("asynclog_pending", 0);
    assert_eq!(rig.left(&keys), Vec::<String>::new());
}

#[test]
fn a_delete_that_cannot_be_kept_is_an_error() {
    let rig = Rig::new(
        Folder::small("deletes-full", "256k").unwrap_or_else(|| panic!("mounting takes root")),
        &["--asynclog-fsync", "always"],
    );
    let keys = keys(0, 0, 6000);
    rig.store(&keys);
    rig.fault_proxy.set(Mode::Refuse);
    let mut wire = rig.proxy.connect();
    let (mut kept, mut refused) = (Vec::new(), 0);
    for key in &keys {
        wire.send(format!("delete {key}\r\n").as_bytes());
        match &wire.read_until(b"\r\n")[..] {
            b"NOT_FOUND\r\n" => kept.push(key.clone()),
            line => {
                assert!(line.starts_with(b"SERVER_ERROR "), "{}", line.escape_ascii());
                refused += 1;
            }
        }
    }
    assert!(kept.len() > 1000 && refused > 500, "{} kept, {refused} refused", kept.len());
    assert_eq!(rig.proxy.stat("asynclog_failures"), refused);
    rig.fault_proxy.set(Mode::Open);
    rig.proxy.wait_for("asynclog_pending", 0);
    assert_eq!(rig.left(&kept), Vec::<String>::new());
    assert_eq!(rig.left(&keys).len() as u64, refused);
    // There is room again.
    rig.fault_proxy.set(Mode::Refuse);
    assert_eq!(delete(rig.proxy.addr(), &keys[..10]).len(), 10);
}

/// The disk fails to write (the fifth time and every third time after it), and then to sync written
/// data.
#[test]
fn a_failing_disk_loses_no_kept_delete() {
    for call in ["pwrite64:error=EIO:when=5+3", "fdatasync:error=EIO:when=5+3"] {
        let server = Launch::new(Kind::Holdall).start();
        let fault_proxy = FaultProxy::before(server.addr());
        let folder = Folder::new("deletes-eio");
        let config = router::config(&[fault_proxy.addr()], r#""PoolRoute|A""#);
        let inject = format!("inject={call}");
        let args: Vec<&str> = QUICK
            .iter()
            .chain(&["-a", folder.name(), "--asynclog-fsync", "always"])
            .copied()
            .collect();
        let strace = [
            "strace",
            "-D",
            "-f",
            "-qqq",
            "-o",
            "/dev/null",
            "-e",
            "trace=pwrite64,fdatasync",
            "-e",
            &inject,
        ];
        let proxy = Router::under(&strace, &config, &args);
        let mut rig = Rig { server, fault_proxy, proxy, folder };
        let keys = keys(0, 0, 60);
        rig.store(&keys);
        rig.fault_proxy.set(Mode::Refuse);
        let mut wire = rig.proxy.connect();
        let (mut kept, mut refused) = (Vec::new(), 0);
        for key in &keys {
            wire.send(format!("delete {key}\r\n").as_bytes());
            match &wire.read_until(b"\r\n")[..] {
                b"NOT_FOUND\r\n" => kept.push(key.clone()),
                line if line.starts_with(b"SERVER_ERROR ") => refused += 1,
                line => panic!("{}", line.escape_ascii()),
            }
        }
        assert!(kept.len() > 20 && refused > 10, "{call}: {} kept, {refused} refused", kept.len());
        rig.proxy.kill_and_restart();
        rig.fault_proxy.set(Mode::Open);
        rig.proxy.wait_for("asynclog_pending", 0);
        assert_eq!(rig.left(&kept), Vec::<String>::new(), "{call}");
    }
}

/// Spool files left by mcrouter are executed, too.
#[test]
fn spool_files_of_mcrouter_are_executed() {
    let folder = Folder::new("deletes-mcrouter");
    let server = Launch::new(Kind::Holdall).start();
    let addr = server.addr();
    let hour = folder.path().join("20261121T10-1795255200");
    fs::create_dir_all(&hour).unwrap();
    let lines = format!(
        "[\"AS1.0\",1795255200,\"C\",[\"{ip}\",{port},\"delete one\\r\\n\"]]\n\
         [\"AS2.0\",1795255200.5,\"C\",{{\"f\":\"\",\"h\":\"[{ip}]:{port}\",\"p\":\"A\",\"k\":\"two\",\"r\":\"\",\"s\":\"\"}}]\nno line\n",
        ip = addr.ip(),
        port = addr.port(),
    );
    fs::write(hour.join("20261121T101500-1795255200-svc-mcrouter-t1-0x1"), lines).unwrap();
    let fault_proxy = FaultProxy::before(addr);
    let config = router::config(&[addr], r#""PoolRoute|A""#);
    let never = ["-a", folder.name(), "--asynclog-max-age", "4000000000"];
    let mut wire = server.connect();
    wire.expect(
        b"set one 0 0 1\r\nx\r\nset two 0 0 1\r\nx\r\nset three 0 0 1\r\nx\r\n",
        b"STORED\r\nSTORED\r\nSTORED\r\n",
    );
    let proxy = Router::start(&config, &never);
    let rig = Rig { server, fault_proxy, proxy, folder };
    let all = ["one", "two", "three"].map(str::to_owned);
    let end = Instant::now() + Duration::from_secs(20);
    while rig.left(&all) != ["three"] {
        assert!(Instant::now() < end, "{:?}", rig.left(&all));
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!hour.exists());
}

#[test]
fn without_a_spool_a_failed_delete_is_an_error() {
    let mut rig = Rig::new(Folder::new("deletes-none"), &["--asynclog-disable"]);
    rig.fault_proxy.set(Mode::Refuse);
    rig.proxy.connect().expect(b"delete k\r\n", b"SERVER_ERROR Connection error\r\n");
    assert!(rig.proxy.is_running());
}
