//! Metrics as data: families of points with labels.

/// A kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only rises while the program runs.
    Counter,
    /// It rises and falls, but another program, whose names this page has, calls it a counter.
    FallingCounter,
    /// It rises and falls.
    Gauge,
    /// Counts of values up to each of several bounds.
    Histogram,
}

/// A metric: its points, all of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// The full name, with its prefix.
    pub name: String,
    /// The kind of all its points.
    pub kind: Kind,
    /// One line about it; empty if it has none.
    pub help: String,
    /// Its values, each with different labels.
    pub points: Vec<Point>,
}

/// A value of a metric at this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Names and values.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: Value,
}

/// The content of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number, as text.
    Number(String),
    /// A histogram.
    Histogram {
        /// Upper bounds in rising order, each with the number of values up to it.
        buckets: Vec<(f64, u64)>,
        /// The upper ends of narrow ranges in rising order, each over 0, with the number of values
        /// in each, as in a native histogram of Prometheus. Empty ones may be left out.
        cells: Vec<(f64, u64)>,
        /// The sum of all values.
        sum: f64,
        /// The number of all values.
        count: u64,
    },
}
