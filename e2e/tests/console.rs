//! `holdall console` in a real browser, over fifty servers, memcached, a proxy and an unavailable
//! member: every view at three widths in both colour schemes, by keyboard, without a serious
//! finding of axe, with hostile keys, for some thousand updates; the actions behind their login;
//! and the page that a server, a proxy and an invalidator serve about themselves.
//!
//! `SHOTS=FOLDER` keeps screenshots. `CONSOLE_MINUTES=60` leaves the page open for 60 minutes.
//! `CONSOLE_ROUNDS=15` measures 15 loads of the page instead of three.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use processes::{ChildGuard, free_port, usage, wait_until_accepts};
use testkit::server::holdall_path;
use testkit::wire::{Wire, find};
use testkit::{Router, Server};

const SERVERS: u8 = 50;

/// A key that would run a script if a page rendered it as markup.
const HOSTILE: &str = "<img/src=x/onerror=alert(1)>:1";

/// Fifty servers on separate addresses with one port, as in a topology.
struct Tier {
    servers: Vec<ChildGuard>,
    addresses: Vec<SocketAddr>,
}

impl Tier {
    fn start() -> Self {
        let port = free_port().unwrap();
        let address = |last| SocketAddr::from((Ipv4Addr::new(127, 0, 1, last), port));
        let addresses: Vec<SocketAddr> = (1..=SERVERS).map(address).collect();
        let start = |address: &SocketAddr| {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            let mut command = Command::new(holdall_path());
            command.args(["serve", "-l", &host, "-p", &port, "-m", "16", "-t", "1"]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            ChildGuard::from(command.spawn().unwrap())
        };
        let servers = addresses.iter().map(start).collect();
        wait_until_accepts(&addresses, None, Duration::from_secs(60)).unwrap();
        Self { servers, addresses }
    }

    /// A topology of two regions and three clusters; one cluster's last server is down.
    fn topology(&self, folder: &Path, router: SocketAddr) -> PathBuf {
        let list = |from: usize, to: usize| {
            let hosts = self.addresses[from..to].iter().map(|one| format!("\"{}\"", one.ip()));
            hosts.collect::<Vec<_>>().join(", ")
        };
        let text = format!(
            "name = \"shop\"\n[cache]\nport = {}\n[router]\nport = {}\n\
             [[region]]\nname = \"east\"\nmaster = true\n\
             [[region.cluster]]\nname = \"a\"\nservers = [{}]\nrouters = [\"127.0.0.1\"]\n\
             [[region.cluster]]\nname = \"b\"\nservers = [{}, \"127.0.9.9\"]\nrouters = []\n\
             [[region]]\nname = \"west\"\n\
             [[region.cluster]]\nname = \"c\"\nservers = [{}]\nrouters = []\n",
            self.addresses[0].port(),
            router.port(),
            list(0, 20),
            list(20, 35),
            list(35, 50),
        );
        let file = folder.join("shop.toml");
        fs::write(&file, text).unwrap();
        file
    }
}

/// A console, and the address of its page.
fn console(words: &[&str]) -> (ChildGuard, String) {
    let mut command = Command::new(holdall_path());
    command.arg("console").args(words).args(["--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("http://127.0.0.1:"), "{line}");
    (ChildGuard::from(child), line.trim_end().to_owned())
}

/// Stores and reads some keys, one of them hostile, on some servers until `is_over`.
fn load(addresses: &[SocketAddr], is_over: &AtomicBool) {
    let mut wires: Vec<Wire> = addresses.iter().map(|address| Wire::connect(*address)).collect();
    let mut round: usize = 0;
    // Relaxed: the end may come a round later.
    while !is_over.load(Ordering::Relaxed) {
        for wire in &mut wires {
            let value = "v".repeat(100 + round % 900);
            let key = format!("user:{}", round % 5000);
            let set = format!("set {key} 0 3600 {}\r\n{value}\r\n", value.len());
            wire.expect(set.as_bytes(), b"STORED\r\n");
            for key in [HOSTILE, &format!("{HOSTILE}{}", round % 500)] {
                wire.expect(format!("set {key} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
            }
            let read = format!("user:{}", (round * 7) % 9000);
            wire.send(format!("get {HOSTILE} {read}\r\n").as_bytes());
            wire.read_until(b"END\r\n");
        }
        round += 1;
        thread::sleep(Duration::from_millis(2));
    }
}

/// An empty folder for one test.
fn empty_folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs the script in the browser and returns its output.
fn browse(words: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/browser/check_console.mjs");
    let mut command = Command::new("node");
    command.arg(script).args(words);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_good = output.status.success() && text.trim_end().ends_with("checks passed");
    assert!(is_good, "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn every_view_of_the_console_is_drawn_in_a_browser() {
    let folder = empty_folder("console");
    let mut tier = Tier::start();
    let route = r#"{ "type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|B"] }"#;
    let router = Router::over(&tier.addresses[..2], route, &[]);
    let memcached = Server::memcached(&[]);
    let topology = tier.topology(&folder, router.addr());
    let config = router.config_path().display().to_string();
    let plain = memcached.addr().to_string();
    let (console, address) =
        console(&[&plain, "--topology", &topology.display().to_string(), "--config", &config]);
    let loaded = [&tier.addresses[..5], &[router.addr()]].concat();
    let (is_over, proxy) = (AtomicBool::new(false), router.addr().to_string());
    thread::scope(|scope| {
        scope.spawn(|| load(&loaded, &is_over));
        let minutes = env::var("CONSOLE_MINUTES").unwrap_or_else(|_| "0".to_owned());
        let mut words = vec![address.as_str(), "--hostile", HOSTILE, "--minutes", &minutes];
        words.extend(["--proxy", &proxy]);
        let shots = env::var("SHOTS").ok();
        if let Some(shots) = &shots {
            words.extend(["--shots", shots]);
        }
        let before = usage::cpu_time(console.id()).unwrap();
        let begin = std::time::Instant::now();
        let result = std::panic::catch_unwind(|| browse(&words));
        let busy = usage::cpu_time(console.id()).unwrap() - before;
        is_over.store(true, Ordering::Relaxed);
        let share = busy.as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
        let memory = usage::rss_bytes(console.id()).unwrap_or(0) >> 20;
        match result {
            Ok(text) => print!("{text}"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        println!("the console: {share:.1} % of a core, {memory} MB, over {SERVERS} servers");
    });
    assert!(tier.servers.iter_mut().all(ChildGuard::is_running));
}

/// The page draws every member without help. The figures are printed and never judged.
#[test]
fn first_view_and_map_figures() {
    let folder = empty_folder("console-figures");
    let tier = Tier::start();
    let router = Router::over(&tier.addresses[..2], r#""PoolRoute|A""#, &[]);
    let topology = tier.topology(&folder, router.addr()).display().to_string();
    let (_console, address) = console(&["--topology", &topology]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| load(&tier.addresses[..5], &is_over));
        // Includes the proxy and the unavailable server.
        let members = (SERVERS + 2).to_string();
        let result = std::panic::catch_unwind(|| browse(&[&address, "--measure", &members]));
        is_over.store(true, Ordering::Relaxed);
        print!("{}", result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

#[test]
fn a_logged_in_user_flushes_a_prefix() {
    let folder = empty_folder("console-login");
    let users = folder.join("users").display().to_string();
    fs::write(&users, "ann:secret\n").unwrap();
    let server = Server::holdall(&[]);
    let mut wire = server.connect();
    wire.expect(b"set user:1 0 0 1\r\nx\r\n", b"STORED\r\n");
    wire.expect(b"set item:1 0 0 1\r\nx\r\n", b"STORED\r\n");
    let (_console, address) =
        console(&[&server.addr().to_string(), "--users", &users, "--actions"]);
    browse(&[&address, "--login", "ann:secret", "--flush", "user:"]);
    wire.expect(b"get user:1 item:1\r\n", b"VALUE item:1 0 1\r\nx\r\nEND\r\n");
}

/// The proxy applies the change, fails no request, and sends a drained server nothing more.
#[test]
fn a_logged_in_user_drains_and_adds_a_server() {
    let folder = empty_folder("console-drain");
    let users = folder.join("users").display().to_string();
    fs::write(&users, "ann:secret\n").unwrap();
    let servers = [Server::holdall(&[]), Server::holdall(&[])];
    let addresses = [servers[0].addr(), servers[1].addr()];
    let text = format!(
        "{{\"pools\": {{\"A\": {{\"servers\": [ // in order\n\"{}\", \"{}\"] }} }}, \
         \"route\": \"PoolRoute|A\"}}",
        addresses[0], addresses[1]
    );
    let router = Router::start(&text, &["--asynclog-disable"]);
    let config = router.config_path().display().to_string();
    let proxy = router.addr().to_string();
    let words = [&proxy, "--config", &config, "--users", &users, "--actions"];
    let (_console, address) = console(&words);
    let drained = addresses[1].to_string();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut wire = router.connect();
            // Relaxed: the end may come a round later.
            let mut round = 0;
            while !is_over.load(Ordering::Relaxed) {
                let set = format!("set k{} 0 0 1\r\nx\r\n", round % 1000);
                wire.expect(set.as_bytes(), b"STORED\r\n");
                round += 1;
            }
        });
        let mut words = vec![address.as_str(), "--login", "ann:secret", "--drain", &drained];
        words.extend(["--add", "A"]);
        let shots = env::var("SHOTS").ok();
        if let Some(shots) = &shots {
            words.extend(["--shots", shots]);
        }
        let result = std::panic::catch_unwind(|| print!("{}", browse(&words)));
        is_over.store(true, Ordering::Relaxed);
        client.join().unwrap();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let now = fs::read_to_string(&config).unwrap();
    assert_eq!(now, text.replace(&format!(", \"{drained}\""), ""));
    let mut wire = router.connect();
    let all_on_first = |wire: &mut Wire| {
        (0..100).all(|key| {
            wire.send(format!("get __mcrouter__.route(get,k{key})\r\n").as_bytes());
            find(&wire.read_until(b"END\r\n"), drained.as_bytes()).is_none()
        })
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !all_on_first(&mut wire) {
        assert!(std::time::Instant::now() < deadline, "the proxy goes on asking {drained}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// The page that a process serves about itself, from a child process that ends with it.
#[test]
fn every_role_serves_a_page_about_itself() {
    let folder = empty_folder("console-beside");
    let page = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let look = |at: SocketAddr, members: &str| {
        wait_until_accepts(&[at], None, Duration::from_secs(60)).unwrap();
        browse(&[&format!("http://{at}/"), "--beside", members]);
    };
    let ends = |at: SocketAddr| {
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(at).is_ok() {
            assert!(std::time::Instant::now() < deadline, "the page outlives its process");
            thread::sleep(Duration::from_millis(50));
        }
    };

    let of_server = page();
    let mut server = Server::holdall(&[
        "--console",
        &format!("{of_server},interval=2"),
        "-o",
        "drop_privileges",
    ]);
    look(of_server, "1");

    let of_router = page();
    let route = "\"PoolRoute|A\"";
    let mut router = Router::over(&[server.addr()], route, &["--console", &of_router.to_string()]);
    look(of_router, "2");

    let of_invalidator = page();
    let (status, events) = (page(), page());
    let config = folder.join("invalidate.toml");
    let checkpoint = folder.join("checkpoint");
    let text = format!(
        "checkpoint = {checkpoint:?}\nstatus = \"{status}\"\n[source]\nkind = \"ndjson\"\n\
         listen = \"{}\"\n[keys.tables]\n\"shop.users\" = [\"user:{{id}}\"]\n\
         [[cluster]]\nname = \"east\"\nrouters = [\"{}\"]\n",
        events,
        router.addr()
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(holdall_path());
    command.args(["invalidate", "run", "--config", config.to_str().unwrap()]);
    command.args(["--console", &of_invalidator.to_string()]);
    let mut invalidator = ChildGuard::from(command.spawn().unwrap());
    // The invalidator is in trouble until a sender of changes connects.
    wait_until_accepts(&[events], None, Duration::from_secs(60)).unwrap();
    let _source = std::net::TcpStream::connect(events).unwrap();
    look(of_invalidator, "2");

    let words = [server.addr().to_string(), status.to_string()];
    let (_console, all) = console(&words.each_ref().map(String::as_str));
    browse(&[&all, "--invalidator", "here"]);

    // However the process ends, its page ends, too.
    invalidator.kill();
    ends(of_invalidator);
    browse(&[&all, "--invalidator", "away"]);
    router.kill();
    ends(of_router);
    server.kill();
    ends(of_server);
}
