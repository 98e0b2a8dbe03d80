//! A real OpenTelemetry Collector, and the data that it received.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::certificates::Folder;
use e2e::clients::tool;
use processes::{ChildGuard, wait_until_accepts};
use serde_json::Value;
use testkit::process::free_port;

/// Maximum time that a test waits for expected data.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running collector, which writes all received data to a file.
pub(crate) struct Collector {
    _child: ChildGuard,
    _folder: Folder,
    received: PathBuf,
    port: u16,
}

impl Collector {
    /// Starts it with HTTP.
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// Starts it with HTTPS, with this certificate and key.
    pub(crate) fn encrypted(certificate: &str, key: &str) -> Self {
        Self::with(&format!("\n        tls: {{cert_file: \"{certificate}\", key_file: \"{key}\"}}"))
    }

    fn with(tls: &str) -> Self {
        let (folder, port) = (Folder::new(), free_port());
        let received = PathBuf::from(folder.path("received.json"));
        let config = folder.write(
            "collector.yaml",
            &format!(
                "receivers:\n  otlp:\n    protocols:\n      http:\n        endpoint: 127.0.0.1:{port}{tls}\n\
                 exporters:\n  file:\n    path: {}\n    flush_interval: 50ms\n\
                 service:\n  pipelines:\n\
                 \x20   metrics: {{receivers: [otlp], exporters: [file]}}\n\
                 \x20   traces: {{receivers: [otlp], exporters: [file]}}\n",
                received.display()
            ),
        );
        let mut command = Command::new(tool("otelcol"));
        command.arg("--config").arg(format!("file:{config}"));
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        let mut child = ChildGuard::from(command.spawn().unwrap());
        let address = ([127, 0, 0, 1], port).into();
        wait_until_accepts(&[address], Some(&mut child), PATIENCE).unwrap();
        Self { _child: child, _folder: folder, received, port }
    }

    /// The address for exporters.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// All complete lines of the file.
    fn received(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.received).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The spans that it received.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for message in self.received() {
            for resource in list(&message["resourceSpans"]) {
                let service = attributes(&resource["resource"])["service.name"].clone();
                for scope in list(&resource["scopeSpans"]) {
                    spans.extend(list(&scope["spans"]).map(|span| Span::read(&service, span)));
                }
            }
        }
        spans
    }

    /// The spans, once `is_whole` accepts them.
    #[track_caller]
    pub(crate) fn until(&self, is_whole: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let end = Instant::now() + PATIENCE;
        loop {
            let spans = self.spans();
            if is_whole(&spans) {
                return spans;
            }
            assert!(Instant::now() < end, "never: {spans:#?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The exports of metrics of this service.
    pub(crate) fn exports(&self, service: &str) -> Vec<Export> {
        let mut exports = Vec::new();
        for message in self.received() {
            for resource in list(&message["resourceMetrics"]) {
                let attributes = attributes(&resource["resource"]);
                if attributes["service.name"] == service {
                    exports.push(Export::read(attributes, resource));
                }
            }
        }
        exports
    }
}

/// The properties of a span that tests check.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) service: String,
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    /// 2 for a server, 3 for a client.
    pub(crate) kind: u64,
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Span {
    fn read(service: &str, span: &Value) -> Self {
        let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
        Self {
            service: service.to_owned(),
            name: text("name"),
            trace: text("traceId"),
            id: text("spanId"),
            parent: text("parentSpanId"),
            kind: span["kind"].as_u64().unwrap(),
            began_ns: text("startTimeUnixNano").parse().unwrap(),
            ended_ns: text("endTimeUnixNano").parse().unwrap(),
            attributes: attributes(span),
        }
    }

    /// `holdall.outcome`, or empty.
    pub(crate) fn outcome(&self) -> &str {
        self.attributes.get("holdall.outcome").map_or("", String::as_str)
    }
}

/// One export of metrics.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) resource: BTreeMap<String, String>,
    /// The time when its numbers were read, in nanoseconds since 1970.
    pub(crate) at_ns: u64,
    /// By name: the kind in Prometheus's terms.
    pub(crate) kinds: BTreeMap<String, &'static str>,
    /// By name and labels, in the form of Prometheus's text.
    pub(crate) samples: BTreeMap<String, f64>,
}

impl Export {
    fn read(resource: BTreeMap<String, String>, message: &Value) -> Self {
        let (mut kinds, mut samples, mut at_ns) = (BTreeMap::new(), BTreeMap::new(), 0);
        for scope in list(&message["scopeMetrics"]) {
            for metric in list(&scope["metrics"]) {
                let name = metric["name"].as_str().unwrap();
                let (kind, data) = ["sum", "gauge", "histogram"]
                    .iter()
                    .find_map(|kind| Some((*kind, metric.get(kind)?)))
                    .unwrap();
                if kind != "gauge" {
                    assert_eq!(data["aggregationTemporality"], 2, "{name} is cumulative");
                }
                let word = if kind == "sum" { "counter" } else { kind };
                assert_eq!(kind == "sum", data["isMonotonic"] == true, "{name}");
                assert!(kinds.insert(name.to_owned(), word).is_none(), "twice: {name}");
                for point in list(&data["dataPoints"]) {
                    at_ns = nanos(&point["timeUnixNano"]);
                    let began_ns = nanos(&point["startTimeUnixNano"]);
                    assert!(began_ns < at_ns && (kind == "gauge" || began_ns > 0), "{name}");
                    add(&mut samples, name, point);
                }
            }
        }
        Self { resource, at_ns, kinds, samples }
    }
}

/// Adds a point in the form of Prometheus's text.
fn add(samples: &mut BTreeMap<String, f64>, name: &str, point: &Value) {
    let labels: Vec<String> = list(&point["attributes"])
        .map(|label| format!("{}=\"{}\"", label["key"].as_str().unwrap(), text(&label["value"])))
        .collect();
    let labelled = |name: String, more: Option<String>| {
        let labels: Vec<String> = labels.iter().cloned().chain(more).collect();
        if labels.is_empty() { name } else { format!("{name}{{{}}}", labels.join(",")) }
    };
    let mut put = |name: String, value: f64| {
        assert!(samples.insert(name.clone(), value).is_none(), "twice: {name}");
    };
    let Some(counts) = point.get("bucketCounts") else {
        let value = point["asDouble"].as_f64();
        let value = value.unwrap_or_else(|| point["asInt"].as_str().unwrap().parse().unwrap());
        return put(labelled(name.to_owned(), None), value);
    };
    let bounds = list(&point["explicitBounds"]).map(|bound| bound.as_f64().unwrap().to_string());
    let mut up_to = 0.0;
    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(list(counts)) {
        up_to += count.as_str().unwrap().parse::<f64>().unwrap();
        put(labelled(format!("{name}_bucket"), Some(format!("le=\"{bound}\""))), up_to);
    }
    let count = point.get("count").map_or(0.0, |count| count.as_str().unwrap().parse().unwrap());
    put(labelled(format!("{name}_count"), None), count);
    put(labelled(format!("{name}_sum"), None), point["sum"].as_f64().unwrap_or(0.0));
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Zero is omitted in the JSON.
fn nanos(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

fn text(value: &Value) -> String {
    let (_, value) = value.as_object().unwrap().iter().next().unwrap();
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn attributes(owner: &Value) -> BTreeMap<String, String> {
    let pairs = list(&owner["attributes"]);
    pairs.map(|pair| (pair["key"].as_str().unwrap().to_owned(), text(&pair["value"]))).collect()
}
