//! Prometheus's text format, version 0.0.4.

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

/// The samples of one answer.
///
/// ```
/// use metrics::{Kind, Page};
///
/// let mut page = Page::new("holdall_route_");
/// page.family("server_up", Kind::Gauge, "1 while the server is asked.");
/// page.sample("server_up", &[("server", "a:11211")], 1);
/// let text = page.into_text();
/// assert!(text.starts_with("# HELP holdall_route_server_up 1 while the server is asked.\n"));
/// assert!(text.ends_with("\nholdall_route_server_up{server=\"a:11211\"} 1\n"));
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

    /// Begins the names that follow with `prefix`.
    pub const fn set_prefix(&mut self, prefix: &'static str) {
        self.prefix = prefix;
    }

    /// Begins a metric: its kind, and one line about it. Its samples follow, all of them together.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let prefix = self.prefix;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
    }

    /// Writes one value. Labels are pairs of a name and a value, which may be any text.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "{}{name}{} {value}", self.prefix, Labels(labels));
    }

    /// Writes a metric that has one value.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_help_are_escaped() {
        let mut page = Page::new("a_");
        page.sample("b", &[("c", "\\ \" \n"), ("d", "")], 1);
        page.set_prefix("x_");
        page.single("e", Kind::Counter, "one\\two\nthree", 0.5);
        assert_eq!(
            page.into_text(),
            "a_b{c=\"\\\\ \\\" \\n\",d=\"\"} 1\n\
             # HELP x_e one\\\\two\\nthree\n# TYPE x_e counter\nx_e 0.5\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_everything() {
        let mut page = Page::new("");
        page.family("t", Kind::Histogram, "Times.");
        page.histogram("t", &[("s", "x")], [(0.001, 1), (2.0, 3)], 4.25, 5);
        let text = page.into_text();
        let expected = [
            "# HELP t Times.",
            "# TYPE t histogram",
            "t_bucket{s=\"x\",le=\"0.001\"} 1",
            "t_bucket{s=\"x\",le=\"2\"} 3",
            "t_bucket{s=\"x\",le=\"+Inf\"} 5",
            "t_sum{s=\"x\"} 4.250000",
            "t_count{s=\"x\"} 5",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
