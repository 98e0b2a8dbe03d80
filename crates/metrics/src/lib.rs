//! Prometheus's text format, version 0.0.4, and the HTTP response that carries it.
//!
//! No library, because those keep the numbers, too; here the programs count in atomics of their own
//! and write a page when they are asked.
#![forbid(unsafe_code)]

use std::fmt::{Display, Write};

/// A kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises while the program runs.
    Counter,
    /// It rises and falls.
    Gauge,
    /// Counts of values up to each of several bounds.
    Histogram,
}

/// The samples of one answer, all under one prefix.
///
/// ```
/// use metrics::{Kind, Page};
///
/// let mut page = Page::new("holdall_route_");
/// page.kind("server_up", Kind::Gauge);
/// page.sample("server_up", &[("server", "a:11211")], 1);
/// assert_eq!(
///     page.into_text(),
///     "# TYPE holdall_route_server_up gauge\nholdall_route_server_up{server=\"a:11211\"} 1\n",
/// );
/// ```
#[derive(Debug)]
pub struct Page {
    prefix: &'static str,
    text: String,
}

impl Page {
    /// An empty page, whose names begin with `prefix`.
    #[must_use]
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Says of which kind the metric is. Its samples follow, all of them together.
    pub fn kind(&mut self, name: &str, kind: Kind) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "# TYPE {}{name} {kind}", self.prefix);
    }

    /// Writes one value. Labels are pairs of a name and a value, which may be any text.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "{}{name}{} {value}", self.prefix, Labels(labels));
    }

    /// Writes a histogram: the number of values up to each bound, their sum and their number.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in buckets {
            let bound = bound.to_string();
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), count);
        }
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), count);
        self.sample(&format!("{name}_sum"), labels, format_args!("{sum:.6}"));
        self.sample(&format!("{name}_count"), labels, count);
    }

    /// The text of all samples.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Labels as they stand behind a name.
struct Labels<'l>(&'l [(&'l str, &'l str)]);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut before = '{';
        for (name, value) in self.0 {
            write!(f, "{before}{name}=\"")?;
            for letter in value.chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    '"' => f.write_str("\\\"")?,
                    '\n' => f.write_str("\\n")?,
                    _ => f.write_char(letter)?,
                }
            }
            f.write_char('"')?;
            before = ',';
        }
        if self.0.is_empty() { Ok(()) } else { f.write_char('}') }
    }
}

/// The HTTP response to a request with this first line: the page for `GET /metrics`, else 404.
#[must_use]
pub fn respond(request: &str, page: impl FnOnce() -> String) -> String {
    let mut words = request.split_ascii_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", page()),
        _ => ("404 Not Found", "only GET /metrics is here\n".to_owned()),
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::new("a_");
        page.sample("b", &[("c", "\\ \" \n"), ("d", "")], 1);
        page.sample("e", &[], 0.5);
        assert_eq!(page.into_text(), "a_b{c=\"\\\\ \\\" \\n\",d=\"\"} 1\na_e 0.5\n");
    }

    #[test]
    fn a_histogram_ends_with_everything() {
        let mut page = Page::new("");
        page.kind("t", Kind::Histogram);
        page.histogram("t", &[("s", "x")], [(0.001, 1), (2.0, 3)], 4.25, 5);
        let text = page.into_text();
        let expected = [
            "# TYPE t histogram",
            "t_bucket{s=\"x\",le=\"0.001\"} 1",
            "t_bucket{s=\"x\",le=\"2\"} 3",
            "t_bucket{s=\"x\",le=\"+Inf\"} 5",
            "t_sum{s=\"x\"} 4.250000",
            "t_count{s=\"x\"} 5",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_the_page_is_served() {
        let page = || "x 1\n".to_owned();
        let answer = respond("GET /metrics HTTP/1.1\r\n", page);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nx 1\n"));
        assert!(answer.contains("Content-Length: 4\r\n"), "{answer}");
        for request in ["GET / HTTP/1.1", "POST /metrics HTTP/1.1", "GET /metrics2", "GET", ""] {
            assert!(respond(request, page).starts_with("HTTP/1.1 404 "), "{request}");
        }
    }
}
