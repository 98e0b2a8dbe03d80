//! Watts of a host from its management controller, by Redfish (DMTF DSP0266): JSON over HTTP.
//!
//! It reads the properties of DMTF's schemas (DSP0268): `PowerWatts.Reading` of EnvironmentMetrics,
//! `PowerControl[0].PowerConsumedWatts` of Power, which older controllers have, and `Reading` of a
//! Sensor in watts. A Chassis names one of the first two.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::Access;

/// The time limit for an answer: management controllers are slow.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of bytes read from an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A resource that reports watts, and the access to it.
#[derive(Debug)]
pub(super) struct Resource {
    agent: Agent,
    url: String,
    /// The value of `Authorization`.
    login: Option<String>,
}

impl Resource {
    /// Finds the resource at `url` that reports watts.
    ///
    /// # Errors
    ///
    /// When a file of `access` cannot be read, or `url` leads to no resource with watts.
    pub(super) fn open(url: &str, access: &Access) -> Result<Self> {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE));
        let agent = config.tls_config(tls(access)?).build().into();
        let login = access.login()?.map(|(user, password)| {
            format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
        });
        let mut resource = Self { agent, url: url.to_owned(), login };
        let document = resource.document()?;
        let named = |name: &str| document[name]["@odata.id"].as_str();
        if let Some(path) = named("EnvironmentMetrics").or_else(|| named("Power")) {
            resource.url = sibling(url, path)?;
        }
        Ok(resource)
    }

    /// Watts now.
    ///
    /// # Errors
    ///
    /// When there is no answer, or one without watts.
    pub(super) fn watts(&self) -> Result<f64> {
        let document = self.document()?;
        watts(&document).with_context(|| self.url.clone())
    }

    fn document(&self) -> Result<Value> {
        let mut request = self.agent.get(&self.url).header("accept", "application/json");
        if let Some(login) = &self.login {
            request = request.header("authorization", login);
        }
        let mut answer = request.call().with_context(|| self.url.clone())?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let body = body.with_context(|| self.url.clone())?;
        serde_json::from_str(&body).with_context(|| format!("{}: not JSON", self.url))
    }
}

fn tls(access: &Access) -> Result<TlsConfig> {
    let tls = TlsConfig::builder();
    let Some(path) = &access.ca else {
        return Ok(tls.disable_verification(access.is_insecure).build());
    };
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    let mut issuers = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(issuer) = item.with_context(|| path.display().to_string())? {
            issuers.push(issuer);
        }
    }
    ensure!(!issuers.is_empty(), "{}: it holds no certificate", path.display());
    Ok(tls.root_certs(RootCerts::new_with_certs(&issuers)).build())
}

/// Another resource of the service that has `url`.
fn sibling(url: &str, path: &str) -> Result<String> {
    let (scheme, rest) = url.split_once("://").context("no address of a resource")?;
    ensure!(path.starts_with('/'), "{url}: it names no path, but {path:?}");
    let host = rest.split('/').next().unwrap_or_default();
    Ok(format!("{scheme}://{host}{path}"))
}

/// The watts in a document.
fn watts(document: &Value) -> Result<f64> {
    let is_power = document["ReadingType"] == "Power" || document["ReadingUnits"] == "W";
    let found = [
        &document["PowerWatts"]["Reading"],
        &document["PowerControl"][0]["PowerConsumedWatts"],
        if is_power { &document["Reading"] } else { &Value::Null },
    ];
    let watts = found.into_iter().find_map(Value::as_f64);
    let kind = document["@odata.type"].as_str().unwrap_or("a document without a type");
    match watts {
        Some(watts) if watts > 0.0 => Ok(watts),
        Some(watts) => bail!("{watts} W: this controller does not measure"),
        None => bail!(
            "{kind} tells no watts; wanted is a Chassis, EnvironmentMetrics, Power or a Sensor in W"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use serde_json::json;
    use tempfile::NamedTempFile;

    use super::*;

    /// A controller over HTTP that requires a login: a chassis, its metrics, and an older chassis.
    fn controller() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                // admin:secret
                let is_known = head.iter().any(|line| {
                    line.to_ascii_lowercase().starts_with("authorization:")
                        && line.ends_with("Basic YWRtaW46c2VjcmV0")
                });
                let path = head[0].split(' ').nth(1).unwrap();
                let (status, body) = match (is_known, document(path)) {
                    (false, _) => ("401 Unauthorized", String::new()),
                    (true, Some(document)) => ("200 OK", document.to_string()),
                    (true, None) => ("404 Not Found", String::new()),
                };
                let length = body.len();
                let _ = write!(
                    &stream,
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\
                     Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
            }
        });
        format!("http://{address}")
    }

    /// Properties that DMTF's schemas require, and the properties read here.
    fn document(path: &str) -> Option<Value> {
        let own = |kind: &str, more: Value| {
            let mut document =
                json!({"@odata.id": path, "@odata.type": kind, "Id": "1", "Name": "1"});
            for (name, value) in more.as_object().unwrap() {
                document[name] = value.clone();
            }
            document
        };
        let link = |to: &str| json!({"@odata.id": format!("{path}/{to}")});
        Some(match path {
            "/redfish/v1/Chassis/1" => own(
                "#Chassis.v1_25_0.Chassis",
                json!({
                    "ChassisType": "RackMount",
                    "EnvironmentMetrics": link("EnvironmentMetrics"),
                    "Power": link("Power"),
                }),
            ),
            "/redfish/v1/Chassis/1/EnvironmentMetrics" => own(
                "#EnvironmentMetrics.v1_3_0.EnvironmentMetrics",
                json!({"PowerWatts": {"Reading": 374.5}}),
            ),
            "/redfish/v1/Chassis/2" => own(
                "#Chassis.v1_5_0.Chassis",
                json!({"ChassisType": "RackMount", "Power": link("Power")}),
            ),
            "/redfish/v1/Chassis/2/Power" => own(
                "#Power.v1_5_0.Power",
                json!({"PowerControl": [
                    {"@odata.id": format!("{path}#/PowerControl/0"), "MemberId": "0",
                     "Name": "System Power Control", "PowerConsumedWatts": 212},
                    {"@odata.id": format!("{path}#/PowerControl/1"), "MemberId": "1",
                     "Name": "CPU Power Control", "PowerConsumedWatts": 80},
                ]}),
            ),
            "/redfish/v1/Chassis/1/Sensors/Power" => own(
                "#Sensor.v1_7_0.Sensor",
                json!({"ReadingType": "Power", "ReadingUnits": "W", "Reading": 371.0}),
            ),
            "/redfish/v1/Chassis/1/Sensors/Inlet" => own(
                "#Sensor.v1_7_0.Sensor",
                json!({"ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 24.0}),
            ),
            _ => return None,
        })
    }

    /// The file exists as long as the first part.
    fn access(login: &str) -> (NamedTempFile, Access) {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(login.as_bytes()).unwrap();
        let login = Some(file.path().to_owned());
        (file, Access { login, ..Access::default() })
    }

    #[test]
    fn watts_are_read_from_each_kind_of_resource() {
        let (base, (_file, access)) = (controller(), access("admin:secret\n"));
        for (path, watts) in [
            ("Chassis/1", 374.5),
            ("Chassis/1/EnvironmentMetrics", 374.5),
            ("Chassis/2", 212.0),
            ("Chassis/2/Power", 212.0),
            ("Chassis/1/Sensors/Power", 371.0),
        ] {
            let url = format!("{base}/redfish/v1/{path}");
            let found = Resource::open(&url, &access).unwrap().watts().unwrap();
            assert!((found - watts).abs() < 1e-9, "{path}: {found}");
        }
    }

    #[test]
    fn a_resource_without_watts_is_a_clear_error() {
        let (base, (_file, good)) = (controller(), access("admin:secret"));
        let told = |path: &str, access: &Access| {
            let url = format!("{base}/redfish/v1/{path}");
            let watts = Resource::open(&url, access).and_then(|resource| resource.watts());
            format!("{:#}", watts.unwrap_err())
        };
        let inlet = told("Chassis/1/Sensors/Inlet", &good);
        assert!(inlet.contains("#Sensor.v1_7_0.Sensor tells no watts"), "{inlet}");
        assert!(told("Chassis/9", &good).contains("404"), "{}", told("Chassis/9", &good));
        let (_file, bad) = access("admin:guess");
        let refused = told("Chassis/1", &bad);
        assert!(refused.contains("401"), "{refused}");
        let away = Resource::open("http://127.0.0.1:1/redfish/v1/Chassis/1", &good);
        assert!(format!("{:#}", away.unwrap_err()).contains("http://127.0.0.1:1/"));
    }

    #[test]
    fn a_reading_of_zero_watts_is_an_error() {
        let error = watts(&json!({"PowerControl": [{"PowerConsumedWatts": 0}]})).unwrap_err();
        assert!(error.to_string().contains("does not measure"), "{error}");
    }
}
