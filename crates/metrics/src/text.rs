//! Prometheus's text format, version 0.0.4.

use std::fmt::{Display, Formatter, Result, Write};

use crate::family::{Family, Kind, Point, Value};

/// Writes all of `families`.
pub(crate) fn write(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        let Family { name, kind, help, points } = family;
        // Writing into a string does not fail.
        if let Some(kind) = kind {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", word(*kind));
        }
        points.iter().for_each(|point| write_point(&mut text, name, point));
    }
    text
}

const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

fn write_point(text: &mut String, name: &str, point: &Point) {
    let labels = &point.labels;
    // Writing into a string does not fail.
    match &point.value {
        Value::Number(value) => {
            let _ = writeln!(text, "{name}{} {value}", Labels(labels, None));
        }
        Value::Histogram { buckets, sum, count, .. } => {
            for (bound, up_to) in buckets {
                let bound = bound.to_string();
                let _ = writeln!(text, "{name}_bucket{} {up_to}", Labels(labels, Some(&bound)));
            }
            let _ = writeln!(text, "{name}_bucket{} {count}", Labels(labels, Some("+Inf")));
            let _ = writeln!(text, "{name}_sum{} {sum:.6}", Labels(labels, None));
            let _ = writeln!(text, "{name}_count{} {count}", Labels(labels, None));
        }
    }
}

/// Labels as they stand behind a name, and the bound of a bucket.
struct Labels<'l>(&'l [(String, String)], Option<&'l str>);

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let labels = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut before = '{';
        for (name, value) in labels.chain(self.1.map(|bound| ("le", bound))) {
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
        if before == '{' { Ok(()) } else { f.write_char('}') }
    }
}
