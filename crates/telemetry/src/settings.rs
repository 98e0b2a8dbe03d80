//! The settings of an export: the flag, and OpenTelemetry's environment variables.
//!
//! A variable of one signal (`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) overrides that of both
//! (`OTEL_EXPORTER_OTLP_ENDPOINT`), and an empty one counts as unset.

use std::path::PathBuf;
use std::time::Duration;

use hostport::without_login;
use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::resource;

/// The destination of one signal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Target {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) timeout: Duration,
    /// The issuers of the collector's certificate, in PEM; by default those of Mozilla's list.
    pub(crate) certificate: Option<PathBuf>,
}

/// The signals that a process exports, and their settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) metrics: Option<Target>,
    pub(crate) traces: Option<Target>,
    /// The time between two exports of metrics.
    pub(crate) interval: Duration,
    /// The maximum time for which a span waits for others.
    pub(crate) delay: Duration,
    pub(crate) resource: Vec<(String, String)>,
}

/// The reason why settings are invalid.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
pub enum Fault {
    /// Neither http nor https.
    #[error("{name}: '{}' is no address that begins with http:// or https://", without_login(url))]
    Url {
        /// The flag or the variable.
        name: String,
        /// Its value.
        url: String,
    },
    /// A number of milliseconds is expected.
    #[error("{name}: '{text}' is not 1 to {MILLIS_MAX} milliseconds")]
    Millis {
        /// The variable.
        name: String,
        /// Its value.
        text: String,
    },
    /// Pairs are expected.
    #[error("{name}: '{text}' is not NAME=VALUE with a percent-encoded value")]
    Pair {
        /// The variable.
        name: String,
        /// The faulty part of its value.
        text: String,
    },
    /// Only these words have a meaning.
    #[error("{name}: '{text}' is not {}", known.join(" or "))]
    Word {
        /// The variable.
        name: String,
        /// Its value.
        text: String,
        /// The words with a meaning.
        known: &'static [&'static str],
    },
    /// Only one form is supported.
    #[error("{name}: '{text}' is not spoken; set it to http/protobuf")]
    Protocol {
        /// The variable.
        name: String,
        /// Its value.
        text: String,
    },
}

/// A day.
const MILLIS_MAX: u64 = 86_400_000;

const SIGNALS: [&str; 2] = ["METRICS", "TRACES"];

/// The flag.
const FLAG: &str = "--otlp";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

const DEFAULT_DELAY: Duration = Duration::from_secs(5);

impl Settings {
    /// The settings of a process of this role; `None` if nothing is exported. `endpoint` is the
    /// flag's, `variable` reads the environment.
    ///
    /// # Errors
    ///
    /// Returns the first variable, or the flag, with an invalid value.
    pub fn read(
        role: &str,
        endpoint: Option<&str>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Fault> {
        let variables = Variables(variable);
        if !variables.has_collector(endpoint) {
            return Ok(None);
        }
        let disabled = variables.word("OTEL_SDK_DISABLED", &["true", "false"])?;
        if endpoint.is_none() && disabled == Some("true") {
            return Ok(None);
        }
        let target = |signal, exporter, path| match variables.word(exporter, &["otlp", "none"])? {
            Some("none") => Ok(None),
            _ => variables.target(endpoint, signal, path),
        };
        let metrics = target("METRICS", "OTEL_METRICS_EXPORTER", "v1/metrics")?;
        let traces = target("TRACES", "OTEL_TRACES_EXPORTER", "v1/traces")?;
        if metrics.is_none() && traces.is_none() {
            return Ok(None);
        }
        let millis = |name: &str, default| Ok(variables.millis(name)?.unwrap_or(default));
        let given = variables.pairs("OTEL_RESOURCE_ATTRIBUTES")?;
        let service = variables.get("OTEL_SERVICE_NAME");
        Ok(Some(Self {
            metrics,
            traces,
            interval: millis("OTEL_METRIC_EXPORT_INTERVAL", DEFAULT_INTERVAL)?,
            delay: millis("OTEL_BSP_SCHEDULE_DELAY", DEFAULT_DELAY)?,
            resource: resource::attributes(role, service, given),
        }))
    }

    /// True if spans are exported.
    #[must_use]
    pub const fn has_traces(&self) -> bool {
        self.traces.is_some()
    }
}

struct Variables<'v>(&'v dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// A variable of this signal, or of all, with its name.
    fn of(&self, signal: &str, what: &str) -> Option<(String, String)> {
        let names =
            [format!("OTEL_EXPORTER_OTLP_{signal}_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    /// True if the flag or a variable names a collector.
    fn has_collector(&self, flag: Option<&str>) -> bool {
        flag.is_some() || SIGNALS.iter().any(|signal| self.of(signal, "ENDPOINT").is_some())
    }

    /// The variable's value, which is one of these words.
    fn word(
        &self,
        name: &str,
        known: &'static [&'static str],
    ) -> Result<Option<&'static str>, Fault> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let word = known.iter().find(|word| text.eq_ignore_ascii_case(word)).copied();
        let fault = || Fault::Word { name: name.to_owned(), text, known };
        word.map(Some).ok_or_else(fault)
    }

    /// The destination of a signal, if any.
    fn target(
        &self,
        flag: Option<&str>,
        signal: &str,
        path: &str,
    ) -> Result<Option<Target>, Fault> {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
        let (name, url, is_whole) = match (flag, self.of(signal, "ENDPOINT")) {
            (Some(url), _) => (FLAG.to_owned(), url.to_owned(), false),
            (None, Some((name, url))) => (name.clone(), url, name == own),
            (None, None) => return Ok(None),
        };
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        if !is_http || url.ends_with("://") {
            return Err(Fault::Url { name, url });
        }
        if let Some((name, text)) = self.of(signal, "PROTOCOL")
            && text != "http/protobuf"
        {
            return Err(Fault::Protocol { name, text });
        }
        // Only the address for one signal is complete.
        let url = if is_whole { url } else { format!("{}/{path}", url.trim_end_matches('/')) };
        let headers = match self.of(signal, "HEADERS") {
            Some((name, _)) => self.pairs(&name)?,
            None => Vec::new(),
        };
        let timeout = match self.of(signal, "TIMEOUT") {
            Some((name, _)) => self.millis(&name)?,
            None => None,
        };
        let certificate = self.of(signal, "CERTIFICATE").map(|(_, path)| PathBuf::from(path));
        let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
        Ok(Some(Target { url, headers, timeout, certificate }))
    }

    fn millis(&self, name: &str) -> Result<Option<Duration>, Fault> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let millis = text.parse().ok().filter(|millis| (1..=MILLIS_MAX).contains(millis));
        let fault = || Fault::Millis { name: name.to_owned(), text };
        millis.map(Duration::from_millis).map(Some).ok_or_else(fault)
    }

    /// `NAME=VALUE,NAME=VALUE`, whose values are percent-encoded.
    fn pairs(&self, name: &str) -> Result<Vec<(String, String)>, Fault> {
        let text = self.get(name).unwrap_or_default();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let fault = || Fault::Pair { name: name.to_owned(), text: part.to_owned() };
                let (key, value) = part.split_once('=').ok_or_else(fault)?;
                if !is_encoded(value) {
                    return Err(fault());
                }
                let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| fault())?;
                Ok((key.trim().to_owned(), value.into_owned()))
            })
            .collect()
    }
}

/// True if two hexadecimal digits follow each `%`: the decoder keeps any other one as it is.
fn is_encoded(text: &str) -> bool {
    let is_byte = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.split('%').skip(1).all(is_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flag: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Settings>, Fault> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read("serve", flag, &variable)
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint() {
        assert!(read(None, &[]).unwrap().is_none());
        assert!(read(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap().is_none());
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert!(read(None, &[endpoint, ("OTEL_SDK_DISABLED", "True")]).unwrap().is_none());
        assert!(read(None, &[endpoint, ("OTEL_SDK_DISABLED", "false")]).unwrap().is_some());
        assert!(read(None, &[("OTEL_SDK_DISABLED", "yes")]).unwrap().is_none());
        let none = [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_TRACES_EXPORTER", "none")];
        assert!(read(Some("http://c:4318"), &none).unwrap().is_none());
    }

    #[test]
    fn the_flag_overrides_the_variables_and_is_the_base_url() {
        let both = read(Some("http://a:1/x/"), &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:2")]);
        let both = both.unwrap().unwrap();
        assert_eq!(both.metrics.unwrap().url, "http://a:1/x/v1/metrics");
        assert_eq!(both.traces.unwrap().url, "http://a:1/x/v1/traces");
        assert_eq!(both.interval, DEFAULT_INTERVAL);
    }

    #[test]
    fn a_signal_specific_variable_is_the_full_url() {
        let settings = read(
            None,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://b:2"),
                ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:3/in"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x = y"),
                ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "only=traces"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
                ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "/ca.pem"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
                ("OTEL_BSP_SCHEDULE_DELAY", "200"),
            ],
        );
        let settings = settings.unwrap().unwrap();
        let (metrics, traces) = (settings.metrics.unwrap(), settings.traces.unwrap());
        assert_eq!((&*metrics.url, &*traces.url), ("https://b:2/v1/metrics", "http://t:3/in"));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(metrics.headers, [pair("api-key", "a,b"), pair("x", "y")]);
        assert_eq!(traces.headers, [pair("only", "traces")]);
        assert_eq!(metrics.timeout, Duration::from_millis(1500));
        assert_eq!(metrics.certificate, Some(PathBuf::from("/ca.pem")));
        assert_eq!(traces.certificate, None);
        assert_eq!(settings.interval, Duration::from_secs(1));
        assert_eq!(settings.delay, Duration::from_millis(200));
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        for (flag, variables, expected) in [
            (Some("collector:4318"), &[][..], "--otlp: 'collector:4318' is no address that"),
            (Some("http://"), &[][..], "--otlp: 'http://' is no address that"),
            (
                None,
                &[("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://c:4317")][..],
                "OTEL_EXPORTER_OTLP_ENDPOINT: 'grpc://c:4317' is no address that",
            ),
            (
                Some("http://c"),
                &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")][..],
                "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' is not spoken",
            ),
            (
                Some("http://c"),
                &[("OTEL_EXPORTER_OTLP_HEADERS", "a")][..],
                "OTEL_EXPORTER_OTLP_HEADERS: 'a' is not NAME=VALUE",
            ),
            (
                Some("http://c"),
                &[("OTEL_EXPORTER_OTLP_HEADERS", "a=%41%zz")][..],
                "OTEL_EXPORTER_OTLP_HEADERS: 'a=%41%zz' is not NAME=VALUE with a percent-encoded",
            ),
            (
                Some("http://c"),
                &[("OTEL_METRICS_EXPORTER", "prometheus")][..],
                "OTEL_METRICS_EXPORTER: 'prometheus' is not otlp or none",
            ),
            (
                Some("http://c"),
                &[("OTEL_TRACES_EXPORTER", "otlp,console")][..],
                "OTEL_TRACES_EXPORTER: 'otlp,console' is not otlp or none",
            ),
            (
                Some("http://c"),
                &[("OTEL_SDK_DISABLED", "yes")][..],
                "OTEL_SDK_DISABLED: 'yes' is not true or false",
            ),
            (
                Some("http://c"),
                &[("OTEL_BSP_SCHEDULE_DELAY", "18446744073709551615")][..],
                "OTEL_BSP_SCHEDULE_DELAY: '18446744073709551615' is not 1 to 86400000",
            ),
            (
                Some("http://c"),
                &[("OTEL_METRIC_EXPORT_INTERVAL", "0")][..],
                "OTEL_METRIC_EXPORT_INTERVAL: '0' is not 1 to 86400000 milliseconds",
            ),
        ] {
            let fault = read(flag, variables).unwrap_err().to_string();
            assert!(fault.starts_with(expected), "{fault}");
        }
    }
}
