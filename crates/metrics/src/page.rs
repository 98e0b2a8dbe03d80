//! The metrics of one moment: families of points with labels.

use std::fmt::Display;

use crate::family::{Family, Kind, Point, Value};
use crate::{protobuf, text};

/// All metrics of one moment, as text ([`Self::into_text`]) or in another form
/// ([`Self::into_families`]).
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
    families: Vec<Family>,
}

impl Page {
    /// An empty page, whose names start with `prefix`.
    #[must_use]
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, families: Vec::new() }
    }

    /// Sets the prefix of the following names to `prefix`.
    pub const fn set_prefix(&mut self, prefix: &'static str) {
        self.prefix = prefix;
    }

    /// Starts a metric: its kind, and one line about it. Its samples follow, all of them together.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let (name, help) = (format!("{}{name}", self.prefix), help.to_owned());
        self.families.push(Family { name, kind, help, points: Vec::new() });
    }

    /// Adds one value. Labels are pairs of a name and a value, which may be any text. A value
    /// without a family is a gauge.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.point(name, labels, Value::Number(value.to_string()));
    }

    /// Adds a metric that has one value.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Adds a histogram: the number of values up to each bound, and in each of many narrow cells
    /// ([`Value::Histogram`]); their sum and their number.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        cells: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) {
        let (buckets, cells) = (buckets.into_iter().collect(), cells.into_iter().collect());
        self.point(name, labels, Value::Histogram { buckets, cells, sum, count });
    }

    fn point(&mut self, name: &str, labels: &[(&str, &str)], value: Value) {
        let prefix = self.prefix;
        let is_named = |family: &Family| family.name.strip_prefix(prefix) == Some(name);
        if !self.families.last().is_some_and(is_named) {
            self.family(name, Kind::Gauge, "");
        }
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels = labels.iter().map(own).collect();
        if let Some(family) = self.families.last_mut() {
            family.points.push(Point { labels, value });
        }
    }

    /// The metrics, in the order in which they were added.
    #[must_use]
    pub fn into_families(self) -> Vec<Family> {
        self.families
    }

    /// The messages that Prometheus reads when it accepts native histograms.
    #[must_use]
    pub fn into_messages(self) -> Vec<u8> {
        protobuf::write(self.families)
    }

    /// The text that Prometheus reads, version 0.0.4.
    #[must_use]
    pub fn into_text(self) -> String {
        text::write(self.families)
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
            "# TYPE a_b gauge\na_b{c=\"\\\\ \\\" \\n\",d=\"\"} 1\n\
             # HELP x_e one\\\\two\\nthree\n# TYPE x_e counter\nx_e 0.5\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_the_infinite_bucket() {
        let mut page = Page::new("");
        page.family("t", Kind::Histogram, "Times.");
        page.histogram("t", &[("s", "x")], [(0.001, 1), (2.0, 3)], [], 4.25, 5);
        let text = page.into_text();
        let expected = [
            "# HELP t Times.",
            "# TYPE t histogram",
            "t_bucket{s=\"x\",le=\"0.001\"} 1",
            "t_bucket{s=\"x\",le=\"2\"} 3",
            "t_bucket{s=\"x\",le=\"+Inf\"} 5",
            "t_sum{s=\"x\"} 4.25",
            "t_count{s=\"x\"} 5",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
