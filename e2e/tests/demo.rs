//! `holdall demo`, unattended: it runs, is consistent at the end, writes its figures and its
//! report, and leaves nothing behind.
//!
//! `DEMO_SECONDS` sets the length of the runs, with more users, and compares the figures with the
//! promised ones; without it runs are short, and no time-dependent figure is judged. lab/results
//! has the results of one-minute runs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::server::holdall_path;

/// A run's folder for all temporary files, removed at the end.
struct Run {
    folder: PathBuf,
}

impl Run {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("demo-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // The databases run as the user `nobody` if the test runs as root.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&folder, mode).unwrap();
        Self { folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(holdall_path());
        command.args(["demo", "--plain", "--rows", "2000", "--rate", "50"]).args(arguments);
        command.env("TMPDIR", &self.folder).stdin(Stdio::null());
        command
    }

    /// Runs the demo until it ends, successfully; returns its figures.
    #[track_caller]
    fn figures(&self, arguments: &[&str]) -> Value {
        let (json, report) = (self.folder.join("demo.json"), self.folder.join("demo.html"));
        let mut command = self.command(arguments);
        command.arg("--json").arg(&json).arg("--report").arg(&report);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        println!("{said}");
        let page = fs::read_to_string(&report).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.contains("<svg"));
        fs::remove_file(report).unwrap();
        let figures = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        fs::remove_file(json).unwrap();
        assert_eq!(self.children(), Vec::<PathBuf>::new());
        assert_eq!(fs::read_dir(&self.folder).unwrap().count(), 0, "something is left");
        figures
    }

    /// The programs of processes whose folder is below the run's.
    fn children(&self) -> Vec<PathBuf> {
        let below = |pid: &Path| {
            let cwd = fs::read_link(pid.join("cwd")).ok()?;
            cwd.starts_with(&self.folder).then(|| fs::read_link(pid.join("exe")).ok()).flatten()
        };
        fs::read_dir("/proc").unwrap().filter_map(|entry| below(&entry.ok()?.path())).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The length of runs, if it is set: then figures are judged.
fn long() -> Option<String> {
    std::env::var("DEMO_SECONDS").ok()
}

fn seconds(default: u32) -> String {
    long().unwrap_or_else(|| default.to_string())
}

fn cluster<'f>(figures: &'f Value, name: &str) -> &'f Value {
    let all = figures["clusters"].as_array().unwrap();
    all.iter().find(|cluster| cluster["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

const TROUBLES: &str = "0.2s kill-server; 0.3s add-cluster; 0.5s black-hole; 1s lag; 1.5s cut; 2.5s join; 2.5s no-lag; 3s add-cold-cluster; \
                        3.2s black-hole; 3.5s replay; 5s end-warm-up";

/// The troubles of a long run: a cluster is constantly filled from a warm one whose servers are
/// black holes or are killed repeatedly.
fn troubles() -> String {
    let Some(seconds) = long() else { return TROUBLES.to_owned() };
    let seconds: u32 = seconds.parse().unwrap();
    let turns = [
        "black-hole",
        "black-hole",
        "kill-server",
        "lag",
        "black-hole",
        "no-lag",
        "cut",
        "black-hole",
        "join",
        "replay",
    ];
    let steps = (4..seconds.saturating_sub(10)).step_by(3).zip(turns.into_iter().cycle());
    steps.fold("2s add-cluster".to_owned(), |script, (at, turn)| format!("{script}; {at}s {turn}"))
}

#[test]
fn caches_are_consistent_after_every_trouble() {
    let run = Run::new("troubles");
    let (length, script) = (seconds(6), troubles());
    let far = ["--distance", "20ms", "--loss", "1"];
    let figures = run.figures(&[&far[..], &["--seconds", &length, "--script", &script]].concat());
    assert_eq!(figures["schema"], "holdall-demo");
    for name in ["east/a", "east/b", "west/a", "west/b", "east/c"] {
        assert!(cluster(&figures, name)["reads"].as_u64().unwrap() > 0, "{name}: {figures}");
    }
    assert_eq!(figures["stale_left"], 0);
    assert!(figures["looked_up"].as_u64().unwrap() > 0);
    let told = figures["events"].to_string();
    for event in ["killed", "black hole", "cut", "joined", "filled from east/a", "3 s behind"] {
        assert!(told.contains(event), "no '{event}' in {told}");
    }
}

#[test]
fn the_demo_runs_with_postgresql() {
    let run = Run::new("postgresql");
    let script =
        "0.2s kill-server; 0.5s lag; 1.5s no-lag; 1.5s cut; 2s join; 2s add-cluster; 3s replay";
    let arguments = ["--database", "postgresql", "--seconds", &seconds(4), "--script", script];
    let figures = run.figures(&arguments);
    assert_eq!((&figures["database"], &figures["stale_left"]), (&"postgresql".into(), &0.into()));
    assert!(cluster(&figures, "west/b")["reads"].as_u64().unwrap() > 0);
    assert!(figures["events"].to_string().contains("are sent again"), "{}", figures["events"]);
}

/// A user of the replica region sees its own writes, although the region's database does not have
/// them yet. The remaining stale reads are of rows written twice within the lag: the first write to
/// be replicated removes the marker of both. Rows are many and writes few: even if one write in ten
/// were such a one, the share would be below a quarter.
#[test]
fn remote_markers_show_users_their_own_writes() {
    let shares = ["--no-markers", "--plain"].map(|word| {
        let run = Run::new("markers");
        let shape: &[&str] = match long() {
            None => &["--rows", "20000", "--writes", "20"],
            Some(_) => &["--rows", "200000", "--rate", "200"],
        };
        let length = seconds(6);
        let arguments = [shape, &["--seconds", &length, "--script", "0s lag", word]].concat();
        let figures = run.figures(&arguments);
        let (mut reads, mut stale) = (0.0, 0.0);
        for name in ["west/a", "west/b"] {
            let cluster = cluster(&figures, name);
            let own = cluster["own_reads"].as_f64().unwrap();
            reads += own;
            stale += (1.0 - cluster["own_fresh"].as_f64().unwrap()) * own;
        }
        stale / reads
    });
    println!("stale shares of reads after own writes: {shares:?} without and with markers");
    assert!(shares[0] > 0.0 && shares[1] < shares[0] / 4.0, "{shares:?}");
    assert!(long().is_none() || shares[1] <= 0.001, "{shares:?}");
}

/// A cluster added while users write is warm at once if it is filled from a warm one, and keeps no
/// old values.
#[test]
fn a_cold_cluster_is_warmed_up_during_writes() {
    let run = Run::new("cold");
    let length = seconds(4);
    let (rate, writes, script) = match long() {
        None => ("100", "10", "0.5s add-cold-cluster; 0.5s add-cluster"),
        Some(_) => ("800", "2", "30s add-cold-cluster; 30s add-cluster"),
    };
    let arguments = [
        "--seconds",
        &length,
        "--rows",
        "5000",
        "--rate",
        rate,
        "--writes",
        writes,
        "--script",
        script,
    ];
    let figures = run.figures(&arguments);
    let [from_database, from_warm] = ["east/c", "east/d"].map(|name| cluster(&figures, name));
    for cluster in [from_database, from_warm] {
        assert!(cluster["reads"].as_u64().unwrap() > 0, "{cluster}");
    }
    assert_eq!(figures["stale_left"], 0);
    if long().is_none() {
        return;
    }
    let reads = |cluster: &Value| cluster["warm_after_reads"].as_u64().unwrap();
    assert!(reads(from_database) >= 10 * reads(from_warm));
    // Without any trouble, users see no value that is older than a second.
    let figures = run.figures(&["--seconds", &length, "--rows", "20000", "--rate", "1500"]);
    for name in ["east/a", "east/b", "west/a", "west/b"] {
        assert!(cluster(&figures, name)["fresh_within_1s"].as_f64().unwrap() >= 0.99999, "{name}");
    }
}

fn interrupted(signal: &str) -> (Run, Child) {
    let run = Run::new(signal);
    let child = run
        .command(&["--seconds", "600"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(600);
    // Two databases and all other processes.
    while run.children().len() < 20 {
        assert!(Instant::now() < end, "{:?}", run.children());
        thread::sleep(Duration::from_millis(50));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    (run, child)
}

fn until_gone(run: &Run) {
    let end = Instant::now() + Duration::from_secs(300);
    while !run.children().is_empty() {
        assert!(Instant::now() < end, "{:?}", run.children());
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_interrupt_ends_everything() {
    let (run, mut child) = interrupted("-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    until_gone(&run);
    assert_eq!(fs::read_dir(&run.folder).unwrap().count(), 0, "something is left");
}

#[test]
fn children_exit_with_their_parent() {
    let (run, mut child) = interrupted("-KILL");
    child.wait().unwrap();
    until_gone(&run);
}
