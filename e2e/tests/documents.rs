//! Every console block of the pages is executed, and must show the real output.
//!
//! A page runs in its own network, mount and process namespaces, so its addresses, ports and files
//! below `/etc` are free. A section's background processes end with it. `DOCS_VERBOSE=1` prints
//! each command with its output.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::certificates::Certificates;
use e2e::console::{self, Kind};
use rustix::process::{Pid, Signal, kill_process};

/// Maximum time that a command may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The pause between two polls of a running command.
const PAUSE: Duration = Duration::from_millis(20);

/// The time after which a background command that does not listen is assumed to work.
const UNHEARD: Duration = Duration::from_secs(2);

/// Addresses of the pages that this machine has, in addition to its loopback.
const ADDRESSES: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.1.1"];

macro_rules! pages {
    ($($test:ident $path:literal,)*) => {
        $(#[test] fn $test() { check(stringify!($test), $path); })*
        const PAGES: &[&str] = &[$($path),*];
    };
}

pages! {
    readme "README.md",
    bench "docs/bench.md",
    advice "docs/advice.md",
    configuration "docs/configuration.md",
    daily_work "docs/daily-work.md",
    deployment "docs/deployment.md",
    doctor "docs/doctor.md",
    exit_status "docs/exit-status.md",
    invalidation_lines "docs/invalidation-lines.md",
    holdall_readme "crates/holdall/README.md",
    metrics "docs/metrics.md",
    migrate_elasticache "docs/migrate-elasticache.md",
    migrate_memcached "docs/migrate-memcached.md",
    migrate_proxy "docs/migrate-proxy.md",
    migrate_redis "docs/migrate-redis.md",
    operation "docs/operation.md",
    router "docs/router.md",
    routing "docs/routing.md",
    security "docs/security.md",
    sizing "docs/sizing.md",
    telemetry "docs/telemetry.md",
}

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap()
}

#[test]
fn every_page_with_console_blocks_is_executed() {
    let pages =
        Command::new("git").args(["ls-files", "*.md"]).current_dir(root()).output().unwrap();
    let pages = String::from_utf8(pages.stdout).unwrap();
    assert!(pages.lines().count() > PAGES.len());
    for page in pages.lines().filter(|page| {
        let is_page = page.starts_with("docs/") && !page["docs/".len()..].contains('/');
        is_page || *page == "README.md" || page.ends_with("/README.md")
    }) {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let blocks = console::blocks(&text).unwrap_or_else(|error| panic!("{page}: {error}"));
        let is_text = blocks.iter().all(|block| block.kind == Kind::Text);
        assert!(is_text || PAGES.contains(&page), "add {page} to the list of pages");
    }
}

/// Executes a page's blocks in separate namespaces.
fn check(test: &str, page: &str) {
    if let Some(folder) = env::var_os("IN_NAMESPACE") {
        return Reader::new(folder.into()).read(page);
    }
    let folder = env::temp_dir().join(format!("documents-{test}-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let mut inner = Command::new("unshare");
    inner.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        inner.args(["--map-current-user", "--keep-caps"]);
    }
    inner.arg(env::current_exe().unwrap());
    inner
        .args(["--exact", test, "--nocapture"])
        .env("IN_NAMESPACE", &folder)
        .env("TMPDIR", &folder);
    let status = inner.status().unwrap();
    fs::remove_dir(&folder).unwrap();
    assert!(status.success(), "{page} does not show what happens");
}

/// The environment that a page's commands run in.
struct Reader {
    folder: PathBuf,
    background: Vec<(String, Child, PathBuf)>,
    runs: usize,
}

impl Reader {
    /// `folder` is empty; commands run in it.
    fn new(folder: PathBuf) -> Self {
        system("ip link set lo up");
        for address in ADDRESSES {
            system(&format!("ip address add {address}/32 dev lo"));
        }
        // Files written here disappear with the namespace.
        system(&format!("mount -t tmpfs none {}", folder.display()));
        system("mount -t tmpfs none /dev/shm");
        for covered in ["/etc", "/usr/local/bin", "/var/lib"] {
            let own = folder.join(".layers").join(&covered[1..]);
            let (upper, work) = (own.join("upper"), own.join("work"));
            fs::create_dir_all(&upper).unwrap();
            fs::create_dir_all(&work).unwrap();
            let (upper, work) = (upper.display(), work.display());
            let layers = format!("lowerdir={covered},upperdir={upper},workdir={work}");
            system(&format!("mount -t overlay overlay -o {layers} {covered}"));
        }
        symlink(testkit::server::holdall_path(), "/usr/local/bin/holdall").unwrap();
        // As the packages do.
        if !fs::read_to_string("/etc/passwd").unwrap().contains("\nholdall:") {
            system("useradd --system --user-group holdall");
        }
        let certificates = Certificates::new();
        fs::create_dir_all("/etc/holdall").unwrap();
        fs::create_dir_all("/var/lib/holdall").unwrap();
        for (made, name) in [("server.crt", "cert"), ("server.key", "key"), ("ca.crt", "ca")] {
            fs::copy(certificates.path(made), format!("/etc/holdall/{name}.pem")).unwrap();
        }
        for shown in ["packaging", "crates"] {
            symlink(root().join(shown), folder.join(shown)).unwrap();
        }
        Self { folder, background: Vec::new(), runs: 0 }
    }

    fn read(mut self, page: &str) {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let mut section = 0;
        for block in console::blocks(&text).unwrap_or_else(|error| panic!("{page}: {error}")) {
            if block.section != section {
                self.end_section();
                section = block.section;
            }
            match block.kind {
                Kind::Text => {}
                Kind::File { path, content } => fs::write(self.folder.join(path), content).unwrap(),
                Kind::Console(commands) => {
                    for command in &commands {
                        let at = format!("{page}:{}: {}", command.line, command.text);
                        self.run(&at, command);
                    }
                }
            }
        }
        self.end_section();
    }

    /// Ends the section's background commands. Commands that have already exited must have
    /// succeeded.
    fn end_section(&mut self) {
        // The last one first: clients before their servers.
        for (at, mut child, log) in self.background.drain(..).rev() {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{at}\n{status}: {}", text_of(&log));
            }
            kill_process(Pid::from_child(&child), Signal::TERM).ok();
            let begin = Instant::now();
            while child.try_wait().unwrap().is_none() {
                assert!(begin.elapsed() < PATIENCE, "{at}\ndoes not end: {}", text_of(&log));
                thread::sleep(PAUSE);
            }
        }
    }

    fn run(&mut self, at: &str, command: &console::Command) {
        self.runs += 1;
        let log = self.folder.join(".layers").join(format!("output-{}", self.runs));
        let output = File::create(&log).unwrap();
        // Background commands of a script ignore the signal that `^C` sends, unless it is reset.
        let mut shell = Command::new("env");
        // The shell becomes the last program, so that a signal reaches it.
        shell.args(["--default-signal=INT", "bash", "--norc", "-c", &command.text]);
        shell.current_dir(&self.folder).stdin(Stdio::null());
        shell.stdout(output.try_clone().unwrap()).stderr(output);
        shell.env("PATH", format!("/usr/local/bin:{}", env::var("PATH").unwrap()));
        let listening = sockets();
        let mut child = shell.spawn().unwrap();
        let begin = Instant::now();
        if command.is_background {
            while sockets() == listening && begin.elapsed() < UNHEARD {
                thread::sleep(PAUSE);
            }
            self.background.push((at.to_owned(), child, log));
            return;
        }
        let mut is_interrupted = !command.is_interrupted;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "{at}\ndoes not end: {}", text_of(&log));
            if !is_interrupted && is_shown(&command.output, &text_of(&log)) {
                kill_process(Pid::from_child(&child), Signal::INT).unwrap();
                is_interrupted = true;
            }
            thread::sleep(PAUSE);
        };
        let text = text_of(&log);
        if env::var_os("DOCS_VERBOSE").is_some() {
            println!("{at}\n{text}{status}");
        }
        let expected = command.output.join("\n");
        assert!(is_shown(&command.output, &text), "{at}\nprinted\n{text}\nand not\n{expected}");
        let is_right = command.is_interrupted || status.code() == Some(command.status);
        assert!(is_right, "{at}\n{status}, printed\n{text}");
    }
}

fn is_shown(expected: &[String], text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    console::matches(expected, &lines[..end])
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

/// The number of sockets of this namespace that listen or receive datagrams.
fn sockets() -> usize {
    ["tcp", "tcp6", "udp", "udp6"]
        .iter()
        .flat_map(|kind| fs::read_to_string(format!("/proc/net/{kind}")))
        .map(|table| {
            table.lines().filter(|line| line.contains(" 0A ") || line.contains(" 07 ")).count()
        })
        .sum()
}

#[track_caller]
fn system(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let status = Command::new(words[0]).args(&words[1..]).status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{line}: {status:?}");
}
