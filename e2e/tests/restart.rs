//! Items that outlive the process (`-e`): all of them after a clean exit, every acknowledged one
//! after `kill -9`, and no wrong one after damage to the file.
//!
//! `KILLS=n` and `CASES=n` set the number of rounds; `SEED=n` repeats the choices of a run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test stops where it fails"
)]

use e2e::values::{fetch, make, read_values, store, version};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Kind, Launch, Rng, Server, Wire, rng};

/// The path of a memory file, removed at the end.
struct MemoryFile(PathBuf);

impl MemoryFile {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(PathBuf::from(format!("/dev/shm/e2e-restart-{}-{number}", std::process::id())))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn start(&self, args: &[&str]) -> Server {
        let path = self.0.to_str().unwrap();
        Launch::new(Kind::Holdall).args(&["-e", path, "-m", "64"]).args(args).start()
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        // A killed server leaves its socket.
        let _ = std::fs::remove_file(format!("{}.takeover", self.0.display()));
    }
}

/// Four ways to end a server normally, and every property of an item.
#[test]
fn a_clean_exit_keeps_all_items() {
    let file = MemoryFile::new();
    let mut server = file.start(&["-A"]);
    let large = make("large", 1, 300_000);
    let mut wire = server.connect();
    wire.expect(b"set flags 4294967295 0 1\r\nf\r\n", b"STORED\r\n");
    wire.expect(b"set empty 0 0 0\r\n\r\n", b"STORED\r\n");
    wire.expect(b"set soon 0 1 1\r\ns\r\n", b"STORED\r\n");
    wire.expect(b"set later 0 1000 1\r\nl\r\n", b"STORED\r\n");
    wire.expect(b"set counter 0 0 2\r\n41\r\n", b"STORED\r\n");
    store(&mut wire, "large", &large).unwrap();
    let (mut unique, mut counter) = (cas_of(&mut wire, "counter"), 41);
    for end in ["TERM", "INT", "USR1", "shutdown"] {
        let log = match end {
            "TERM" => server.end(),
            "shutdown" => {
                server.connect().send(b"shutdown\r\n");
                server.wait().1
            }
            signal => {
                server.signal(match signal {
                    "INT" => rustix::process::Signal::INT,
                    _ => rustix::process::Signal::USR1,
                });
                server.wait().1
            }
        };
        assert!(!log.contains("warning: the memory file"), "{end}: {log}");
        if end == "TERM" {
            thread::sleep(Duration::from_millis(1500));
        }
        server = file.start(&["-A"]);
        assert!(server.log().contains("took over"), "{end}: {}", server.log());
        let mut wire = server.connect();
        wire.expect(b"get flags\r\n", b"VALUE flags 4294967295 1\r\nf\r\nEND\r\n");
        wire.expect(b"get empty\r\n", b"VALUE empty 0 0\r\n\r\nEND\r\n");
        wire.expect(b"get soon\r\n", b"END\r\n");
        wire.send(b"mg later t\r\n");
        let left: u32 = wire.line().trim_start_matches("HD t").parse().unwrap();
        assert!((950..1000).contains(&left), "{left} seconds left");
        assert!(fetch(&mut wire, "large").unwrap() == large);
        assert_eq!(cas_of(&mut wire, "counter"), unique);
        counter += 1;
        wire.expect(b"incr counter 1\r\n", format!("{counter}\r\n").as_bytes());
        let next = cas_of(&mut wire, "counter");
        assert!(next > unique, "cas uniques rise: {next} after {unique}");
        unique = next;
    }
}

fn cas_of(wire: &mut Wire, key: &str) -> u64 {
    wire.send(format!("gets {key}\r\n").as_bytes());
    let line = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
    line.lines().next().unwrap().split(' ').nth(4).unwrap().parse().unwrap()
}

/// More threads need more locks of the hash table than a small one has buckets.
#[test]
fn restarts_with_other_thread_counts_keep_all_items() {
    const KEYS: u64 = 500;
    let file = MemoryFile::new();
    let mut server = file.start(&["-t", "2"]);
    let mut wire = server.connect();
    let value = |number| make(&format!("k{number}"), number, 100);
    (0..KEYS).for_each(|number| store(&mut wire, &format!("k{number}"), &value(number)).unwrap());
    for (threads, is_clean) in [("32", true), ("4", false), ("64", false), ("2", true)] {
        if is_clean {
            server.end();
        } else {
            server.kill();
        }
        server = file.start(&["-t", threads]);
        let mut wire = server.connect();
        for number in 0..KEYS {
            let found = fetch(&mut wire, &format!("k{number}"));
            assert_eq!(found, Some(value(number)), "-t {threads}: {}", server.log());
        }
    }
}

/// The wall clock is set while no server runs: items keep their remaining lifetime, to the second.
#[test]
fn a_clock_jump_across_a_restart_expires_nothing_early() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    let file = MemoryFile::new();
    let start = |offset: &str| {
        let path = file.path().to_str().unwrap();
        let launch = Launch::new(Kind::Holdall).args(&["-e", path, "-m", "64"]);
        launch.preload(LIBRARY).env("FAKETIME", offset).start()
    };
    let mut server = start("+0");
    server.connect().expect(b"set k 0 1000 1\r\nv\r\n", b"STORED\r\n");
    for offset in ["-1s", "-1d", "+1d", "-400d", "+400d", "+0"] {
        server.end();
        server = start(offset);
        let mut wire = server.connect();
        wire.send(b"mg k t\r\n");
        let left: u32 = wire.line().trim_start_matches("HD t").parse().unwrap();
        assert!((900..=1000).contains(&left), "{offset}: {left} seconds left");
        // An absolute time refers to the current wall clock.
        let unix: u64 = {
            wire.send(b"stats\r\n");
            let text = String::from_utf8(wire.read_until(b"END\r\n")).unwrap();
            let line = text.lines().find(|line| line.starts_with("STAT time ")).unwrap();
            line.trim_start_matches("STAT time ").parse().unwrap()
        };
        wire.expect(format!("set a 0 {} 1\r\nv\r\n", unix + 100).as_bytes(), b"STORED\r\n");
        wire.send(b"mg a t\r\n");
        let left: u32 = wire.line().trim_start_matches("HD t").parse().unwrap();
        assert!((98..=101).contains(&left), "{offset}: {left} seconds left of 100");
    }
}

/// One client's view of its own keys.
#[derive(Default)]
struct Known {
    /// The last acknowledged version; `None`: deleted, or never stored.
    acknowledged: BTreeMap<String, Option<u64>>,
    /// The command without a reply.
    pending: Option<(String, Option<u64>)>,
}

const CLIENTS: usize = 4;
const KEYS: usize = 600;

/// Stores and deletes until the server is gone. Each key has one client, and a fixed size.
fn write_until_killed(addr: SocketAddr, client: usize, seed: u64, known: &mut Known) -> usize {
    let (mut rng, mut done) = (Rng::new(seed), 0);
    let Ok(mut wire) = Wire::try_connect(addr) else { return 0 };
    loop {
        let number = rng.below(KEYS);
        let key = format!("c{client}k{number}");
        let (change, request) = if rng.one_in(4) {
            (None, format!("delete {key}\r\n").into_bytes())
        } else {
            let version = seed << 32 | done as u64;
            let len = if number < 8 { 20_000 + 9_000 * number } else { 32 + number };
            let value = make(&key, version, len);
            let head = format!("set {key} 0 0 {len}\r\n");
            (Some(version), [head.as_bytes(), &value, b"\r\n"].concat())
        };
        known.pending = Some((key.clone(), change));
        if wire.try_send(&request).is_err() {
            return done;
        }
        let (line, _) = wire.read_until_or_end(b"\r\n", Duration::from_secs(20));
        match &*line {
            b"STORED\r\n" | b"DELETED\r\n" | b"NOT_FOUND\r\n" => {}
            _ => return done,
        }
        known.acknowledged.insert(key, change);
        known.pending = None;
        done += 1;
    }
}

/// Every acknowledged item is present and whole, and no deleted one; a command without a reply may
/// have either outcome, which then counts as acknowledged.
fn check_known(wire: &mut Wire, known: &mut Known, round: usize) {
    let mut asked: BTreeMap<String, Option<u64>> = known.acknowledged.clone();
    if let Some((key, _)) = &known.pending {
        asked.entry(key.clone()).or_insert(None);
    }
    let keys: Vec<&String> = asked.keys().collect();
    let mut found = BTreeMap::new();
    for some in keys.chunks(50) {
        let names: Vec<&str> = some.iter().map(|key| key.as_str()).collect();
        wire.send(format!("get {}\r\n", names.join(" ")).as_bytes());
        for (key, value) in read_values(wire) {
            let version = version(&key, &value);
            found.insert(key, version.unwrap_or_else(|torn| panic!("round {round}: {torn}")));
        }
    }
    for (key, want) in &asked {
        let is = found.get(key).copied();
        let other = known.pending.as_ref().filter(|(pending, _)| pending == key);
        let is_right = is == *want || other.is_some_and(|(_, pending)| is == *pending);
        assert!(
            is_right,
            "round {round}: {key} is {is:?}, acknowledged {want:?}, pending {other:?}"
        );
    }
    if let Some((key, _)) = known.pending.take() {
        let is = found.get(&key).copied();
        known.acknowledged.insert(key, is);
    }
}

/// Repeats `kill -9` under write load with one file.
#[test]
fn kill_9_loses_tears_and_revives_nothing() {
    let (kills, seed) = (number_from("KILLS", 20), rng::seed_from_env());
    let file = MemoryFile::new();
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();
    let (mut rng, mut commands, mut slowest) = (Rng::new(seed), 0, Duration::ZERO);
    for round in 0..=kills {
        let started = Instant::now();
        let mut server = file.start(&["-t", "2"]);
        slowest = slowest.max(started.elapsed());
        let said = if round == 0 { "listening" } else { "did not end well: recovered" };
        server.wait_for_log(said);
        assert!(server.log().contains(if round == 0 { "" } else { " 0 damaged" }));
        known.iter_mut().for_each(|known| check_known(&mut server.connect(), known, round));
        assert_eq!(server.stat("evictions"), 0, "the test is of a cache that is not full");
        let (addr, pause) = (server.addr(), Duration::from_millis(20 + rng.below(250) as u64));
        commands += thread::scope(|scope| {
            let clients: Vec<_> = known
                .iter_mut()
                .enumerate()
                .map(|(client, known)| {
                    let seed = ((round as u64) << 8 | client as u64) + 1;
                    scope.spawn(move || write_until_killed(addr, client, seed, known))
                })
                .collect();
            thread::sleep(pause);
            server.kill();
            clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
        });
    }
    eprintln!(
        "{kills} kills, {commands} commands acknowledged, slowest start {slowest:?}, seed {seed}"
    );
    assert!(commands > kills * 100, "the kills came under load");
}

fn number_from(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Whatever the damage to the file, the server reports why it starts empty or does not start; it
/// serves no wrong byte.
#[test]
fn damage_is_refused_with_a_reason() {
    let (cases, seed) = (number_from("CASES", 20), rng::seed_from_env());
    let mut rng = Rng::new(seed);
    let file = MemoryFile::new();
    let fill = |server: &Server| {
        let mut wire = server.connect();
        for number in 0..200 {
            let key = format!("k{number}");
            store(&mut wire, &key, &make(&key, 1, 32 + 100 * number)).unwrap();
        }
    };
    let mut server = file.start(&[]);
    for case in 0..cases {
        fill(&server);
        server.end();
        let (said, how) = damage(file.path(), case, &mut rng);
        let started = Instant::now();
        server = if how == "other settings" { file.start(&["-f", "1.3"]) } else { file.start(&[]) };
        assert!(started.elapsed() < Duration::from_secs(10), "{how}");
        let log = server.log();
        assert!(log.contains("starting empty") && log.contains(said), "seed {seed}, {how}: {log}");
        let mut wire = server.connect();
        (0..200)
            .for_each(|number| assert_eq!(fetch(&mut wire, &format!("k{number}")), None, "{how}"));
        if how == "other settings" {
            server.end();
            server = file.start(&[]);
        }
    }
}

/// Applies one kind of damage per case; returns the expected message.
fn damage(path: &Path, case: usize, rng: &mut Rng) -> (&'static str, String) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let used = in_use(&file);
    let place = |rng: &mut Rng| {
        let (start, end) = used[rng.below(used.len())];
        start + rng.below(usize::try_from(end - start).unwrap()) as u64
    };
    match case % 6 {
        0 => {
            let at = place(rng);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << rng.below(8)], at).unwrap();
            ("damage", format!("a bit flipped at {at}"))
        }
        1 => {
            let len = 1 + rng.below(usize::try_from(len).unwrap() - 1) as u64;
            file.set_len(len).unwrap();
            ("", format!("cut to {len} bytes"))
        }
        2 => {
            file.write_all_at(&[0; 4096], 0).unwrap();
            ("no header", "header zeroed".to_owned())
        }
        3 => {
            file.write_all_at(&[99], 8).unwrap();
            ("header", "another version".to_owned())
        }
        4 => {
            file.set_len(len + 4096).unwrap();
            ("damaged", "longer".to_owned())
        }
        _ => ("another -f", "other settings".to_owned()),
    }
}

/// The parts of a sparse file that contain data.
fn in_use(file: &File) -> Vec<(u64, u64)> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Ok(start) = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start)).unwrap();
        for page in (start..end).step_by(4096) {
            let mut bytes = [0; 4096];
            let len = usize::try_from(4096.min(end - page)).unwrap();
            file.read_exact_at(&mut bytes[..len], page).unwrap();
            if bytes.iter().any(|&byte| byte != 0) {
                parts.push((page, page + len as u64));
            }
        }
        at = end;
    }
    parts
}

/// A foreign file, or another server's, keeps the server from starting, and stays unchanged.
#[test]
fn a_foreign_memory_file_is_an_error() {
    let holdall = testkit::server::holdall_path();
    let refused = |path: &Path| {
        let output = std::process::Command::new(&holdall)
            .args(["serve", "-p", "-1", "-e", path.to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(71));
        String::from_utf8(output.stderr).unwrap()
    };
    let file = MemoryFile::new();
    let server = file.start(&[]);
    assert!(refused(file.path()).contains("is in use by another process"));
    drop(server);
    let foreign = MemoryFile::new();
    std::fs::write(foreign.path(), "something of value").unwrap();
    let said = refused(foreign.path());
    assert!(said.contains("not a memory file") || said.contains("another user"), "{said}");
    assert_eq!(std::fs::read(foreign.path()).unwrap(), b"something of value");
    assert!(refused(Path::new("/dev/shm")).contains("not a regular file"));
    assert!(refused(Path::new("/nowhere/at/all")).contains("No such file"));
}
