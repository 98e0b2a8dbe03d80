//! The metrics in the collector are those of the Prometheus page: names, kinds, labels and values.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use e2e::certificates::{Certificates, Folder};
use processes::{ChildGuard, wait_until_accepts};
use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{Kind, Launch};

use crate::collector::{Collector, Export};
use crate::{page, router, server};

const PATIENCE: Duration = Duration::from_secs(60);

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// The kinds and the samples of a page.
fn read(page: &str) -> (BTreeMap<String, String>, BTreeMap<String, f64>) {
    let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            kinds.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            samples.insert(name.to_owned(), value.parse().unwrap());
        }
    }
    (kinds, samples)
}

/// Values that fall, but have the type of another program's page, which calls them counters.
const FALLING_COUNTERS: [&str; 2] =
    ["memcached_slab_items_evicted_time_seconds", "memcached_slab_mem_requested_bytes"];

/// An export between two reads of the page has every sample of both reads, and the same value if
/// both agree. A gauge may change and return between two reads: it agrees in the end.
#[track_caller]
fn assert_alike(collector: &Collector, service: &str, address: SocketAddr) -> Export {
    let end = Instant::now() + PATIENCE;
    let (mut seen, mut from_ns) = (read(&page(address)), now_ns());
    let mut gauges_off = Vec::new();
    loop {
        thread::sleep(Duration::from_millis(300));
        let until_ns = now_ns();
        let after = read(&page(address));
        let between = |export: &Export| (from_ns..until_ns).contains(&export.at_ns);
        if let Some(export) = collector.exports(service).into_iter().find(between) {
            gauges_off = compare(&export, &seen, &after);
            if gauges_off.is_empty() {
                return export;
            }
        }
        assert!(Instant::now() < end, "{service}: no export, or {gauges_off:?}");
        (seen, from_ns) = (after, now_ns());
    }
}

type Page = (BTreeMap<String, String>, BTreeMap<String, f64>);

/// Compares an export with the pages before and after it. Returns the gauges that differ.
#[track_caller]
fn compare(export: &Export, before: &Page, after: &Page) -> Vec<String> {
    let (mut compared, mut gauges_off) = (0, Vec::new());
    for (name, value) in &before.1 {
        let Some(later) = after.1.get(name) else { continue };
        let Some(exported) = export.samples.get(name) else { panic!("{name} is missing") };
        // The page is read over a connection, and the export is not.
        if value == later && name != "process_open_fds" {
            // The page prints six digits of a sum.
            if (exported - value).abs() > 1e-6 {
                let off = format!("{name}: {exported}, and {value} on the page");
                let family = name.split_once('{').map_or(name.as_str(), |(family, _)| family);
                assert_eq!(before.0.get(family).map(String::as_str), Some("gauge"), "{off}");
                gauges_off.push(off);
            }
            compared += 1;
        }
    }
    assert!(compared * 10 > before.1.len() * 8, "only {compared} of {}", before.1.len());
    for (name, kind) in &export.kinds {
        // OTLP's counters never fall.
        let falls = FALLING_COUNTERS.contains(&name.as_str());
        let shown = if falls { "counter" } else { kind };
        assert_eq!(before.0.get(name).map(String::as_str), Some(shown), "{name}");
        assert!(!falls || *kind == "gauge", "{name}");
    }
    for name in export.samples.keys() {
        assert!(before.1.contains_key(name) || after.1.contains_key(name), "{name} is not there");
    }
    gauges_off
}

#[test]
fn servers_and_proxies_export_the_metrics_of_their_pages() {
    let collector = Collector::start();
    let status = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let server = server(&collector.url(), &["--metrics", &status.to_string()]);
    let of_proxy = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let metrics = ["--metrics", &of_proxy.to_string()];
    let router = router(&collector.url(), &[server.addr()], "\"PoolRoute|A\"", &metrics);
    let mut wire = router.connect();
    for at in 0..1000 {
        wire.expect(format!("set k{at} 0 0 2\r\nxy\r\n").as_bytes(), b"STORED\r\n");
    }
    let export = assert_alike(&collector, "holdall-serve", status);
    assert!(export.samples["memcached_current_items"] >= 1000.0);
    assert!(export.kinds.values().any(|kind| *kind == "histogram"));
    assert_eq!(export.resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert!(export.resource.contains_key("host.name"));
    let id = &export.resource["service.instance.id"];
    let export = assert_alike(&collector, "holdall-route", of_proxy);
    assert_ne!(export.resource["service.instance.id"], *id);
    assert!(export.kinds.contains_key("holdall_route_request_duration_seconds"));
}

#[test]
fn an_invalidator_exports_the_metrics_of_its_page() {
    let (collector, folder) = (Collector::start(), Folder::new());
    let (server, port) = (Launch::new(Kind::Holdall).start(), free_port());
    let status = SocketAddr::from(([127, 0, 0, 1], port));
    let config = folder.write(
        "invalidate.toml",
        &format!(
            "checkpoint = \"{}\"\nstatus = \"{status}\"\notlp = \"{}\"\n\
             [source]\nkind = \"ndjson\"\n[[cluster]]\nname = \"c\"\nrouters = [\"{}\"]\n",
            folder.path("checkpoint"),
            collector.url(),
            server.addr()
        ),
    );
    let mut command = Command::new(holdall_path());
    command
        .args(["invalidate", "run", "--config", &config])
        .env("OTEL_METRIC_EXPORT_INTERVAL", "100");
    // Its stdin stays open, so it keeps running.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = ChildGuard::from(command.spawn().unwrap());
    wait_until_accepts(&[status], Some(&mut child), PATIENCE).unwrap();
    let export = assert_alike(&collector, "holdall-invalidate", status);
    assert!(export.kinds.keys().any(|name| name.starts_with("holdall_invalidate_")));
}

/// Only OpenTelemetry's variables: names, arbitrary headers, an encrypted collector with its
/// issuer; and a confined server, which may use few system calls.
#[test]
fn environment_variables_configure_an_encrypted_collector() {
    let certificates = Certificates::new();
    let file = |name: &str| certificates.path(name);
    let collector = Collector::encrypted(&file("server.crt"), &file("server.key"));
    let endpoint = format!("https://localhost:{}", collector.port());
    let launch = Launch::new(Kind::Holdall)
        .args(&["-o", "drop_privileges"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)
        .env("OTEL_EXPORTER_OTLP_CERTIFICATE", &file("ca.crt"))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
        .env("OTEL_SERVICE_NAME", "shop-cache")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    let server = launch.start();
    let end = Instant::now() + PATIENCE;
    while collector.exports("shop-cache").is_empty() {
        assert!(Instant::now() < end, "no export: {}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
    let resource = &collector.exports("shop-cache")[0].resource;
    assert_eq!(resource["deployment.environment.name"], "test");
}

/// The certificate of the collector is not trusted: nothing is sent, and the log has the reason.
#[test]
fn an_untrusted_collector_gets_nothing() {
    let certificates = Certificates::new();
    let file = |name: &str| certificates.path(name);
    let collector = Collector::encrypted(&file("server.crt"), &file("server.key"));
    let launch = Launch::new(Kind::Holdall)
        .args(&["--otlp", &format!("https://localhost:{}", collector.port())])
        .env("OTEL_METRIC_EXPORT_INTERVAL", "100");
    let server = launch.start();
    server.wait_for_log("does not take metrics");
    assert!(server.log().contains("certificate"), "{}", server.log());
    assert!(collector.exports("holdall-serve").is_empty());
}

#[test]
fn wrong_telemetry_settings_are_refused_by_name() {
    for (flag, variable, expected) in [
        ("http://127.0.0.1:1", ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "'grpc' is not spoken"),
        (
            "https://127.0.0.1:1",
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file"),
            "/no/such/file",
        ),
    ] {
        for role in [&["serve", "-p", "0", "-u", "nobody"][..], &["route", "-p", "0"]] {
            let mut command = Command::new(holdall_path());
            command.args(role).args(["--otlp", flag]).env(variable.0, variable.1);
            if role[0] == "route" {
                command.args(["--config-str", r#"{"route": "NullRoute"}"#]);
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(expected), "{role:?}: {said}");
        }
    }
    let config = r#"{"route": "NullRoute"}"#;
    let mut command = Command::new(holdall_path());
    command.args(["route", "-p", "0", "--config-str", config, "--trace-sample", "1/10"]);
    let said = command.output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("--trace-sample needs a collector for spans"), "{said}");
    assert!(fs::metadata("/no/such/file").is_err());
}
