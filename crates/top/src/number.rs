//! Numbers as shown in the table: at most six characters.

/// The measure of a number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Any count, in total or per second: 950, 12.3k, 4.56M.
    Count,
    /// 0 to 1, shown in percent.
    Ratio,
    /// Seconds: 250us, 1.25ms, 12.0s, 3h.
    Seconds,
    /// Bytes, by 1024: 512, 1.50K, 2.00G.
    Bytes,
}

/// The number in its unit.
#[must_use]
pub(crate) fn shown(unit: Unit, number: f64) -> String {
    match unit {
        Unit::Count => scaled(number, 1000.0, &["", "k", "M", "G", "T"]),
        Unit::Bytes => scaled(number, 1024.0, &["", "K", "M", "G", "T", "P"]),
        Unit::Ratio => format!("{:.1}%", number * 100.0),
        Unit::Seconds => seconds(number),
    }
}

fn scaled(number: f64, base: f64, prefixes: &[&str]) -> String {
    let mut number = number;
    let mut prefixes = prefixes.iter();
    let mut prefix = *prefixes.next().unwrap_or(&"");
    // A number that would be rounded to the base also gets the next prefix.
    while number >= base - 0.5 {
        let Some(next) = prefixes.next() else { break };
        number /= base;
        prefix = next;
    }
    if prefix.is_empty() {
        // Rates below ten per second would all look like 0 to 9.
        let places = usize::from(number > 0.0 && number < 9.95 && number.fract() != 0.0);
        return format!("{number:.places$}");
    }
    format!("{}{prefix}", three_digits(number))
}

fn three_digits(number: f64) -> String {
    let places = if number < 9.995 {
        2
    } else if number < 99.95 {
        1
    } else {
        0
    };
    format!("{number:.places$}")
}

fn seconds(number: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    match number {
        _ if number < 0.001 => format!("{:.0}us", number * 1e6),
        _ if number < 1.0 => format!("{}ms", three_digits(number * 1e3)),
        _ if number < 2.0 * MINUTE => format!("{}s", three_digits(number)),
        _ if number < 2.0 * HOUR => format!("{:.0}min", number / MINUTE),
        _ if number < 2.0 * DAY => format!("{:.0}h", number / HOUR),
        _ => format!("{:.0}d", number / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_six_characters() {
        let cases = [
            (Unit::Count, 0.0, "0"),
            (Unit::Count, 0.25, "0.2"),
            (Unit::Count, 9.0, "9"),
            (Unit::Count, 950.4, "950"),
            (Unit::Count, 999.6, "1.00k"),
            (Unit::Count, 12_345.0, "12.3k"),
            (Unit::Count, 999_999.0, "1.00M"),
            (Unit::Count, 4_560_000.0, "4.56M"),
            (Unit::Bytes, 1536.0, "1.50K"),
            (Unit::Bytes, 1023.9, "1.00K"),
            (Unit::Bytes, 64.0 * 1_048_576.0, "64.0M"),
            (Unit::Ratio, 1.0, "100.0%"),
            (Unit::Ratio, 0.8766, "87.7%"),
            (Unit::Seconds, 0.000_25, "250us"),
            (Unit::Seconds, 0.001_25, "1.25ms"),
            (Unit::Seconds, 12.0, "12.0s"),
            (Unit::Seconds, 600.0, "10min"),
            (Unit::Seconds, 90_000.0, "25h"),
            (Unit::Seconds, 864_000.0, "10d"),
        ];
        for (unit, number, text) in cases {
            assert_eq!(shown(unit, number), text, "{number}");
            assert!(text.len() <= 6, "{text}");
        }
    }
}
