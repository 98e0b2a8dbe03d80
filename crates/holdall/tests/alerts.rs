//! Alerts, dashboards and native histograms in a real Prometheus, which scrapes real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]
#![allow(clippy::print_stdout, reason = "who waits long sees for which alerts")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{SOON, Scratch, holdall, output};
use serde_json::Value;
use testkit::database::{Postgres, Session};
use testkit::process::free_port;

/// A file of the folder `packaging`, or of the documents.
fn file(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn rules() -> String {
    fs::read_to_string(file("packaging/prometheus/holdall.yml")).unwrap()
}

/// The names of all alerts.
fn alerts() -> BTreeSet<String> {
    let rules = rules();
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

/// Those that wait, by `for`: a scrape that comes too late is no trouble yet.
fn patient_alerts() -> BTreeSet<String> {
    let rules = rules();
    let each = rules.split("- alert: ").skip(1);
    let patient = each.filter(|rule| rule.lines().any(|line| line.trim().starts_with("for: ")));
    patient.filter_map(|rule| rule.lines().next()).map(str::to_owned).collect()
}

#[test]
fn every_alert_has_a_runbook() {
    let page = fs::read_to_string(file("docs/alerts.md")).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(headings.map(str::to_owned).collect::<BTreeSet<_>>(), alerts());
    let rules = rules();
    for name in alerts() {
        assert!(rules.contains(&format!("docs/alerts.md#{}\n", name.to_lowercase())), "{name}");
    }
}

#[test]
fn promtool_accepts_the_rules() {
    let mut check = Command::new("promtool");
    let said = output(check.args(["check", "rules"]).arg(file("packaging/prometheus/holdall.yml")));
    assert!(said.status.success(), "{said:?}");
}

/// Waits for what Prometheus sees in its next rounds. The limit is for a machine that is busy.
fn wait_for_long(what: &str, mut is_there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < Duration::from_secs(180), "{what} did not come");
        thread::sleep(Duration::from_millis(200));
    }
}

/// A process and its endpoint, killed when dropped.
struct Process {
    child: Child,
    clients: SocketAddr,
    operators: SocketAddr,
}

impl Process {
    fn new(mut command: Command, clients: SocketAddr, operators: SocketAddr) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, clients, operators }
    }

    fn serve(arguments: &[&str]) -> Self {
        let (clients, operators) = (local(), local());
        let mut command = holdall(&["serve", "-p", &clients.port().to_string(), "--metrics"]);
        command.arg(operators.to_string()).args(arguments);
        Self::new(command, clients, operators)
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.clients).unwrap()
    }

    /// One request on a separate connection; waits for the reply.
    fn ask(&self, request: &str) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream.write_all(b"quit\r\n").unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has already ended is no failure here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of a page that is there. Version 1.0 of HTTP, so that it comes whole and ends.
fn page(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    (head.split(' ').nth(1) == Some("200")).then(|| body.to_owned())
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A Prometheus that scrapes the processes of a file each second.
struct Prometheus {
    process: Process,
    folder: Scratch,
}

impl Prometheus {
    /// With the unchanged rules, except that no alert waits.
    fn eager(targets: &[&Process]) -> Self {
        let eager: String = rules()
            .lines()
            .map(|line| if line.trim().starts_with("for: ") { "        for: 0s" } else { line })
            .flat_map(|line| [line, "\n"])
            .collect();
        Self::start(&eager, targets)
    }

    fn start(rules: &str, targets: &[&Process]) -> Self {
        Self::with(&[], rules, targets)
    }

    fn with(arguments: &[&str], rules: &str, targets: &[&Process]) -> Self {
        let folder = Scratch::new();
        fs::write(folder.path("rules.yml"), rules).unwrap();
        let config = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}\n\
            rule_files: [rules.yml]\n\
            scrape_configs:\n- job_name: holdall\n  file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]\n";
        fs::write(folder.path("prometheus.yml"), config).unwrap();
        let address = local();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", folder.path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(arguments);
        let this = Self { process: Process::new(command, address, address), folder };
        this.scrape(targets);
        this
    }

    /// Sets the targets to scrape.
    fn scrape(&self, targets: &[&Process]) {
        let list: Vec<_> = targets.iter().map(|target| target.operators.to_string()).collect();
        let text = serde_json::json!([{ "targets": list }]).to_string();
        let new = self.folder.path("targets.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.folder.path("targets.json")).unwrap();
    }

    /// The data of an answer; `None` where there is none yet.
    fn api(&self, path: &str) -> Option<Value> {
        let body = page(self.process.operators, path)?;
        Some(serde_json::from_str::<Value>(&body).unwrap()["data"].clone())
    }

    /// The value vector of a query.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.api(&format!("/api/v1/query?query={encoded}"));
        let data = data.unwrap_or_else(|| panic!("Prometheus refuses {query}"));
        data["result"].as_array().unwrap().clone()
    }

    fn firing(&self) -> BTreeSet<String> {
        let data = self.api("/api/v1/alerts").unwrap_or_default();
        let list = data["alerts"].as_array().cloned().unwrap_or_default();
        let firing = list.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until no alert fires. Without a fault, alerts may fire that normally wait longer than
    /// a late scrape, but do not wait here.
    fn wait_for_no_alert(&self) {
        let patient = patient_alerts();
        let mut firing = BTreeSet::new();
        wait_for_long("the end of every alert", || {
            let now = self.firing();
            assert!(now.is_subset(&patient), "without a trouble: {now:?}");
            if now != firing {
                println!("firing: {now:?}");
                firing = now;
            }
            firing.is_empty()
        });
    }

    /// Waits until each alert has fired.
    fn wait_for_every_alert(&self) {
        let mut missing = alerts();
        let mut seen = BTreeSet::new();
        wait_for_long("every alert", || {
            seen.extend(self.firing());
            let left = missing.len();
            missing.retain(|name| !seen.contains(name));
            if missing.len() < left {
                println!("missing: {missing:?}");
            }
            missing.is_empty()
        });
    }

    /// Waits until each target was scraped this often with success.
    fn wait_for_scrapes(&self, targets: usize, least: u32) {
        wait_for_long("scrapes", || {
            self.api("/api/v1/status/config").is_some()
                && self.query(&format!("sum_over_time(up[1m]) >= {least}")).len() == targets
        });
    }
}

/// The processes that a dashboard offers: those with the metric that its variable asks for.
fn instances(prometheus: &Prometheus, dashboard: &Value) -> BTreeSet<String> {
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variable = variables.iter().find(|one| one["name"] == "instance").unwrap();
    assert!(variable.get("allValue").is_none(), "All is more than what is offered");
    let query = variable["query"].as_str().unwrap().strip_prefix("label_values(").unwrap();
    let found = prometheus.query(query.strip_suffix(", instance)").unwrap());
    found.iter().map(|one| one["metric"]["instance"].as_str().unwrap().to_owned()).collect()
}

/// Every query of a dashboard, for all processes that it offers.
fn queries(dashboard: &Value, instances: &BTreeSet<String>) -> Vec<String> {
    let all: Vec<_> = instances.iter().map(|one| one.replace('.', r"\\.")).collect();
    let all = format!("({})", all.join("|"));
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    queries
        .map(|query| query.replace("$__rate_interval", "1m").replace("$instance", &all))
        .collect()
}

/// Runs every query of a dashboard: Prometheus accepts each query, every name was scraped, and no
/// answer is from a process that the dashboard does not offer.
fn show(prometheus: &Prometheus, name: &str) {
    let known = prometheus.api("/api/v1/metadata").unwrap();
    let text = fs::read_to_string(file(&format!("packaging/grafana/{name}.json"))).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let instances = instances(prometheus, &dashboard);
    let queries = queries(&dashboard, &instances);
    assert!(queries.len() > 5 && !instances.is_empty(), "{name}: {queries:?}");
    for query in queries {
        for answer in prometheus.query(&query) {
            let instance = answer["metric"].get("instance").and_then(Value::as_str);
            assert!(instance.is_none_or(|one| instances.contains(one)), "{name}: {answer}");
        }
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let names = query.split(|letter| !is_part(letter)).filter(|word| {
            ["memcached_", "holdall_", "process_"].iter().any(|prefix| word.starts_with(prefix))
        });
        for metric in names {
            let family = metric.strip_suffix("_bucket").unwrap_or(metric);
            assert!(known.get(family).is_some(), "{name}: nobody gives {metric}");
        }
    }
}

/// The page of alerts names no metric that nobody gives.
fn runbooks_name_what_there_is(prometheus: &Prometheus) {
    let known = prometheus.api("/api/v1/metadata").unwrap();
    let page = fs::read_to_string(file("docs/alerts.md")).unwrap();
    for word in page.split('`').skip(1).step_by(2) {
        if ["memcached_", "holdall_", "process_"].iter().any(|prefix| word.starts_with(prefix)) {
            assert!(known.get(word).is_some(), "docs/alerts.md: nobody gives {word}");
        }
    }
}

/// A proxy in front of `server`, and the file of its configuration.
fn proxy(server: &Process, folder: &Scratch) -> (Process, PathBuf) {
    let config = folder.path("routes.json");
    let pools = format!(
        r#"{{"pools":{{"A":{{"servers":["{}"]}}}},"route":"PoolRoute|A"}}"#,
        server.clients
    );
    fs::write(&config, pools).unwrap();
    (proxy_of(&config, &["--asynclog-disable"]), config)
}

/// A proxy with the configuration of this file.
fn proxy_of(config: &Path, arguments: &[&str]) -> Process {
    let (clients, operators) = (local(), local());
    let mut command = holdall(&["route", "-p", &clients.port().to_string(), "--metrics"]);
    command.arg(operators.to_string()).arg("-f").arg(config).args(arguments);
    Process::new(command, clients, operators)
}

/// An invalidator of these settings.
fn invalidator(
    folder: &Scratch,
    name: &str,
    source: &str,
    router: SocketAddr,
    more: &str,
) -> Process {
    let operators = local();
    let text = format!(
        "checkpoint = \"{}\"\nstatus = \"{operators}\"\n\n[source]\n{source}\nuser = \"holdall\"\n\
         password = \"secret\"\n\n{more}\n\n[[cluster]]\nname = \"east\"\nrouters = [\"{router}\"]\n",
        folder.path(&format!("{name}.checkpoint")).display(),
    );
    let config = folder.path(&format!("{name}.toml"));
    fs::write(&config, text).unwrap();
    let mut command = holdall(&["invalidate", "run", "--config"]);
    command.arg(config);
    Process::new(command, operators, operators)
}

/// One whose database and routers are down.
fn without_database(folder: &Scratch, name: &str, more: &str) -> Process {
    let source = format!("kind = \"mariadb\"\nservers = [\"{}\"]\nserver_id = 4001", local());
    let keys = "[keys.tables]\n\"shop.items\" = \"item:{id}\"\n\n";
    invalidator(folder, name, &source, local(), &format!("{keys}{more}"))
}

/// A database with these flags, and what follows it.
fn followed(flags: &[&str], folder: &Scratch, router: &Process, more: &str) -> (Postgres, Process) {
    let database = Postgres::start(flags);
    database.sql(
        "CREATE TABLE items (id BIGINT PRIMARY KEY); CREATE PUBLICATION cached FOR TABLE items",
    );
    let source = format!(
        "kind = \"postgresql\"\nservers = [\"{}\"]\ndatabase = \"shop\"\nslot = \"holdall\"\n\
         publication = \"cached\"\ncheck_every_ms = 1000",
        database.addr()
    );
    let keys = "[keys.tables]\n\"public.items\" = \"item:{id}\"\n\n";
    let follower =
        invalidator(folder, "follower", &source, router.clients, &format!("{keys}{more}"));
    // It connects to a router with the first delete.
    wait_for_long("a follower", || {
        database.sql("INSERT INTO items SELECT count(*) FROM items");
        page(follower.operators, "/readyz").is_some()
    });
    (database, follower)
}

/// Writes log that the slot does not give up, because of a transaction that does not end: its
/// session.
fn fill_log(database: &Postgres) -> Session {
    let mut open = database.session();
    open.run("BEGIN; INSERT INTO items VALUES (-1)").unwrap();
    for _ in 0..8 {
        database.sql("SELECT pg_switch_wal() FROM pg_logical_emit_message(true, 'x', 'x')");
    }
    open
}

/// Refuses new connections, so no check can be made. Existing connections stay.
fn shut(database: &Postgres) {
    database.sql("UPDATE pg_database SET datallowconn = false WHERE datname = 'shop'");
}

/// A server with a certificate that expires after these days.
fn with_certificate(folder: &Scratch, days: u32) -> Process {
    let file = |name: &str| folder.path(&format!("{name}-{days}")).display().to_string();
    let (chain, key) = (file("chain"), file("key"));
    let words = format!("req -x509 -newkey rsa:2048 -nodes -days {days} -subj /CN=localhost");
    let mut openssl = Command::new("openssl");
    openssl.args(words.split(' ')).args(["-keyout", &key, "-out", &chain]);
    assert!(openssl.output().unwrap().status.success());
    let files = format!("ssl_chain_cert={chain},ssl_key={key}");
    Process::serve(&["-u", "root", "-Z", "-o", &files])
}

/// Sends wrong passwords in parallel, because each answer is delayed.
fn fail_logins(server: &Process, count: usize) {
    let mut streams: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"set auth 0 0 9\r\napp wrong\r\n").unwrap();
    }
    for mut stream in streams {
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"CLIENT_ERROR");
    }
}

/// Stops one worker of the process, until the result is dropped.
fn hang_worker(process: &Process) -> Process {
    let tasks = PathBuf::from(format!("/proc/{}/task", process.child.id()));
    let is_worker = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("worker-"))
    };
    let tasks = fs::read_dir(tasks).unwrap().map(|entry| entry.unwrap().path());
    let worker = tasks.into_iter().find(is_worker).unwrap();
    let script = "import ctypes, sys, time\n\
        for request in 0x4206, 0x4207:  # PTRACE_SEIZE, PTRACE_INTERRUPT\n    \
            assert ctypes.CDLL(None).ptrace(request, int(sys.argv[1]), None, None) == 0\n\
        time.sleep(3600)\n";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(worker.file_name().unwrap());
    Process::new(command, local(), local())
}

/// The number of open file descriptors of the process, including this scrape's.
fn open_descriptors(process: &Process) -> u32 {
    let page = page(process.operators, "/metrics").unwrap();
    let open = page.lines().find_map(|line| line.strip_prefix("process_open_fds "));
    open.unwrap().parse().unwrap()
}

/// Lowers the limit of file descriptors to one more than these.
fn limit_descriptors(process: &Process, open: u32) {
    let limit = open + 1;
    let mut command = Command::new("prlimit");
    command.args([&format!("--nofile={limit}:{limit}"), "--pid", &process.child.id().to_string()]);
    assert!(command.status().unwrap().success());
}

/// All servers in their usual state: dashboards show them and nothing fires. Then each trouble, and
/// every alert fires.
#[test]
fn every_alert_fires_only_on_its_fault() {
    let folder = Scratch::new();
    fs::write(folder.path("users"), "app:secret\n").unwrap();
    let users = folder.path("users");
    let few = Process::serve(&["-c", "40", "-t", "1"]);
    let settings = folder.path("server.toml");
    fs::write(&settings, "disable_evictions = true\nmemory_limit = 2\n").unwrap();
    let full = Process::serve(&["--config", settings.to_str().unwrap()]);
    // Under the test's own user, who alone may lower its limits.
    let closed = Process::serve(&["-u", "root", "-Y", users.to_str().unwrap()]);
    let behind = Process::serve(&[]);
    let (front, config) = proxy(&behind, &folder);
    let (routes, users) = (folder.path("guarded.json"), users.to_str().unwrap());
    fs::copy(&config, &routes).unwrap();
    let guarded = proxy_of(&routes, &["--asynclog-disable", "-Y", users]);
    let spool = folder.path("spool");
    let no_room = ["--async-dir", spool.to_str().unwrap(), "--asynclog-max-bytes", "1"];
    let forgetful = proxy_of(&routes, &no_room);
    let stuck = Process::serve(&[]);
    let renewed = with_certificate(&folder, 90);
    let little_log = ["max_slot_wal_keep_size=48MB", "wal_keep_size=0"];
    let (database, short) = followed(&little_log, &folder, &behind, "");
    let scraped =
        [&few, &full, &closed, &behind, &front, &short, &guarded, &stuck, &renewed, &forgetful];
    let prometheus = Prometheus::eager(&scraped);
    prometheus.wait_for_scrapes(scraped.len(), 2);
    for _ in 0..50 {
        front.ask("set a 0 0 1\r\n1\r\nget a\r\n");
    }
    prometheus.wait_for_scrapes(scraped.len(), 8);
    prometheus.wait_for_no_alert();
    show(&prometheus, "serve");
    show(&prometheus, "route");

    let held: Vec<_> = (0..60).map(|_| few.connect()).collect();
    let value = "x".repeat(10_000);
    for number in 0..400 {
        full.ask(&format!("set key{number} 0 0 10000\r\n{value}\r\n"));
    }
    // Counted first: the server may still have the connections of the logins afterwards.
    let open = open_descriptors(&closed);
    fail_logins(&closed, 12);
    fail_logins(&guarded, 12);
    let hung = hang_worker(&stuck);
    limit_descriptors(&closed, open);
    fs::write(config, "{").unwrap();
    fs::write(settings, "memry_limit = 2\n").unwrap();
    drop(behind);
    for _ in 0..50 {
        front.ask("get a\r\n");
    }
    forgetful.ask("delete a\r\n");
    let canary = "[canary]\ntable = \"shop.canary\"\nevery_ms = 500";
    let expiring = with_certificate(&folder, 2);
    let blind = without_database(&folder, "blind", canary);
    let idle = without_database(&folder, "idle", "[standby]\ngroup = \"g\"");
    let transaction = fill_log(&database);
    // A check tells that, so it comes before those that cannot be made.
    let is_short = |page: String| page.contains("\nholdall_invalidate_log_room_short 1\n");
    wait_for_long("little room", || page(short.operators, "/metrics").is_some_and(is_short));
    shut(&database);
    let lost = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gone = Process::new(Command::new("true"), lost, lost);
    let troubled = [&few, &full, &closed, &front, &guarded, &stuck, &expiring, &forgetful];
    prometheus.scrape(&[&troubled[..], &[&blind, &idle, &short, &gone]].concat());
    prometheus.wait_for_every_alert();
    for name in ["HoldallConfigurationRefused", "HoldallLoginsFail"] {
        let firing = format!("ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}");
        wait_for_long("a server and a proxy", || prometheus.query(&firing).len() == 2);
    }
    show(&prometheus, "invalidate");
    runbooks_name_what_there_is(&prometheus);
    drop((hung, held, transaction));
}

/// Native histograms come in messages, which Prometheus asks for where it keeps such histograms.
#[test]
fn native_histograms_match_the_text_format() {
    const GETS: usize = 20_000;
    let folder = Scratch::new();
    let server = Process::serve(&[]);
    let (proxy, _) = proxy(&server, &folder);
    let scraped = [&server, &proxy];
    let native = ["--enable-feature=native-histograms"];
    let prometheus = Prometheus::with(&native, &rules(), &scraped);
    prometheus.wait_for_scrapes(scraped.len(), 1);
    let mut stream = TcpStream::connect(proxy.clients).unwrap();
    stream.write_all("get a\r\n".repeat(GETS).as_bytes()).unwrap();
    stream.read_exact(&mut vec![0; GETS * "END\r\n".len()]).unwrap();
    let number = |query: &str| -> f64 {
        let found = prometheus.query(query);
        let text = found.first().map(|one| one["value"][1].as_str().unwrap().to_owned());
        text.map_or(0.0, |text| text.parse().unwrap())
    };
    for (process, name, labels) in [
        (&server, "holdall_request_duration_seconds", "{command=\"get\"}"),
        (&proxy, "holdall_route_request_duration_seconds", ""),
    ] {
        let text_count = || {
            let text = page(process.operators, "/metrics").unwrap();
            let begin = format!("{name}_count{}", labels.trim_end_matches('}'));
            let line = text.lines().find(|line| line.starts_with(&begin)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        wait_for_long(name, || {
            let count = number(&format!("histogram_count({name}{labels})"));
            count > 0.0 && (count - text_count()).abs() < f64::EPSILON
        });
        let median = number(&format!("histogram_quantile(0.5, {name}{labels})"));
        assert!(median > 0.0 && median < 60.0, "{name}: {median}");
        assert!(prometheus.query(&format!("{name}_bucket")).is_empty(), "{name} is classic");
    }
    // Counters and gauges come the same way.
    assert!(number("memcached_commands_total{command=\"get\",status=\"miss\"}") > 1000.0);
    assert!(number("process_resident_memory_bytes") > 0.0);
}

/// A server is away, which has an alert of its own: one proxy fails over from it, and another has
/// no client at all, but asks its servers for marks of deletes to come.
#[test]
fn errors_hidden_from_clients_are_not_proxy_errors() {
    let folder = Scratch::new();
    let servers = [Process::serve(&[]), Process::serve(&[])];
    let [one, other] = servers.each_ref().map(|server| server.clients);
    let away = local();
    let (asked, idle) = (folder.path("asked.json"), folder.path("idle.json"));
    let failover = format!(
        r#"{{"pools":{{"A":{{"servers":["{one}","{away}"]}},"G":{{"servers":["{other}"]}}}},
            "route":{{"type":"FailoverRoute","children":["PoolRoute|A","PoolRoute|G"]}}}}"#
    );
    let pool = format!(
        r#"{{"pools":{{"A":{{"servers":["{one}","{other}","{away}"]}}}},"route":"PoolRoute|A"}}"#
    );
    fs::write(&asked, failover).unwrap();
    fs::write(&idle, pool).unwrap();
    let asked = proxy_of(&asked, &["--asynclog-disable"]);
    let spool = folder.path("spool");
    let idle = proxy_of(&idle, &["--async-dir", spool.to_str().unwrap()]);
    let prometheus = Prometheus::eager(&[&asked, &idle]);
    prometheus.wait_for_scrapes(2, 2);
    for number in 0..200 {
        asked.ask(&format!("set key{number} 0 0 1\r\n1\r\nget key{number}\r\n"));
    }
    let is_away = format!("holdall_route_server_up{{server=\"{away}\"}} == 0");
    wait_for_long("a server that is away", || prometheus.query(&is_away).len() == 2);
    prometheus.wait_for_scrapes(2, 8);
    let firing = prometheus.firing();
    assert!(firing.contains("HoldallServerAway"), "{firing:?}");
    assert!(!firing.contains("HoldallRouteErrors"), "{firing:?}");
    let sum = |query: &str| -> f64 {
        let found = prometheus.query(query);
        found[0]["value"][1].as_str().unwrap().parse().unwrap()
    };
    let failed = r#"sum(holdall_route_replies_total{result!="ok"})"#;
    let tried = r#"sum(holdall_route_results_total{result=~"error|tko"})"#;
    assert!(sum(failed) < 1.0 && sum(tried) > 1.0, "{} {}", sum(failed), sum(tried));
    assert!(sum(r#"sum(holdall_route_replies_total{result="ok"})"#) >= 400.0);
    let marks = format!("sum(holdall_route_results_total{{instance=\"{}\"}})", idle.operators);
    assert!(sum(&marks) < 1.0, "{}", sum(&marks));
}

/// A tier at work: a server that evicts, a proxy, a database that changes, and an invalidator with
/// a canary. No alert fires. `QUIET_SECONDS=3600` goes on for an hour.
#[test]
fn no_alert_fires_under_load() {
    let seconds = std::env::var("QUIET_SECONDS").map_or(10, |text| text.parse().unwrap());
    let folder = Scratch::new();
    let server = Process::serve(&["-m", "4"]);
    let (front, _config) = proxy(&server, &folder);
    let (database, follower) = followed(&[], &folder, &front, "[canary]\nevery_ms = 1000\n");
    let scraped = [&server, &front, &follower];
    let prometheus = Prometheus::start(&rules(), &scraped);
    prometheus.wait_for_scrapes(scraped.len(), 2);
    let (target, time) = (front.clients.to_string(), seconds.to_string());
    let mut load = holdall(&["bench", "run", "--server", &target, "--time", &time]);
    load.args(["--rate", "2000", "--connections", "10", "--ratio", "1:3", "--value-size", "1000"]);
    let load = Process::new(load, local(), local());
    let (mut fired, begin) = (BTreeSet::new(), Instant::now());
    while begin.elapsed() < Duration::from_secs(seconds) {
        database.sql("INSERT INTO items SELECT count(*) FROM items");
        fired.extend(prometheus.firing());
        thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(fired, BTreeSet::new());
    for is_there in ["memcached_items_evicted_total > 0", "holdall_invalidate_keys_total > 0"] {
        assert!(!prometheus.query(is_there).is_empty(), "{is_there}");
    }
    println!("{seconds} s under load without an alert");
    drop(load);
}
