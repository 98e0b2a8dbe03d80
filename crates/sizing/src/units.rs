//! Quantities with units as people write them: `"2GB"`, `"512MiB"`, `"10Gbit"`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};

/// Bytes: a number, or text with a unit. `KB`, `MB`, `GB`, `TB` are powers of 1000, `KiB` to `TiB`
/// of 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Bytes(pub f64);

/// Bits per second: a number, or text such as `1Gbit`; powers of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct BitsPerSecond(pub f64);

const BYTES: [(&str, f64); 9] = [
    ("TiB", (1_u64 << 40) as f64),
    ("GiB", (1_u64 << 30) as f64),
    ("MiB", (1_u64 << 20) as f64),
    ("KiB", 1024.0),
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("KB", 1e3),
    ("B", 1.0),
];

const BITS: [(&str, f64); 3] = [("Gbit", 1e9), ("Mbit", 1e6), ("Kbit", 1e3)];

fn parsed(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1.0));
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

struct Quantity {
    units: &'static [(&'static str, f64)],
    example: &'static str,
}

impl Visitor<'_> for Quantity {
    type Value = f64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a number of 0 or more, or text with a unit such as {}", self.example)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        parsed(text, self.units)
            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        if number.is_finite() && number >= 0.0 {
            return Ok(number);
        }
        Err(E::invalid_value(serde::de::Unexpected::Float(number), &self))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Quantity { units: &BYTES, example: "\"2GB\" or \"512MiB\"" }).map(Self)
    }
}

impl<'de> Deserialize<'de> for BitsPerSecond {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Quantity { units: &BITS, example: "\"10Gbit\"" }).map(Self)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl Serialize for BitsPerSecond {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(out, self.0, &[("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)], "B")
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(out, self.0, &BITS, "bit")?;
        out.write_str("/s")
    }
}

fn scaled(
    out: &mut fmt::Formatter<'_>,
    value: f64,
    units: &[(&str, f64)],
    one: &str,
) -> fmt::Result {
    match units.iter().find(|(_, factor)| value >= *factor) {
        Some((unit, factor)) => write!(out, "{} {unit}", significant(value / factor)),
        None => write!(out, "{} {one}", significant(value)),
    }
}

/// A number with three significant digits, or all digits of its whole part.
#[must_use]
pub(crate) fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 | 100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// A whole number with its digits in groups of three.
#[must_use]
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value <= -0.5 { format!("-{text}") } else { text }
}

/// Seconds in readable units.
#[must_use]
pub(crate) fn duration(secs: f64) -> String {
    match secs {
        86_400.0.. => format!("{} days", significant(secs / 86_400.0)),
        3600.0.. => format!("{} h", significant(secs / 3600.0)),
        60.0.. => format!("{} min", significant(secs / 60.0)),
        _ => format!("{} s", significant(secs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_with_and_without_units() {
        for (text, bytes) in [("2GB", 2e9), ("512 MiB", 536_870_912.0), ("1.5KB", 1500.0)] {
            assert_eq!(parsed(text, &BYTES), Some(bytes), "{text}");
        }
        assert_eq!(parsed("17", &BYTES), Some(17.0));
        assert_eq!(parsed("10Gbit", &BITS), Some(1e10));
        for text in ["", "GB", "-1GB", "2 gb", "infGB", "NaN", "2GB/s"] {
            assert_eq!(parsed(text, &BYTES), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_displayed_with_units() {
        assert_eq!(Bytes(5e8).to_string(), "500 MB");
        assert_eq!(Bytes(1_234_567.0).to_string(), "1.23 MB");
        assert_eq!(BitsPerSecond(1e10).to_string(), "10 Gbit/s");
        assert_eq!(grouped(64_000_000.0), "64,000,000");
        assert_eq!(grouped(-1234.0), "-1,234");
        assert_eq!(significant(0.0), "0");
        assert_eq!(duration(90.0), "1.5 min");
    }
}
