//! Numbers and sizes of the command line: one checked parser, which never wraps, truncates or stops
//! early.
//!
//! memcached reads most of its numbers with `atoi`, so that `-m 1g` means one megabyte there and
//! `-c 10x` ten connections. Here a number is read whole or refused.

use std::ops::RangeInclusive;

use super::bad_value::BadValue;

/// Reads an unsigned decimal number within `range`, which must fit `T`.
///
/// # Errors
///
/// Fails if `text` is empty, has a sign or any other character, or is out of range.
pub(crate) fn number<T: TryFrom<u64>>(
    text: &str,
    range: RangeInclusive<u64>,
) -> Result<T, BadValue> {
    let value = digits(text).ok_or_else(|| BadValue::NotANumber(text.to_owned()))?;
    let value = within(value, text, &range, |bound| bound.to_string())?;
    let most = || range.end().to_string();
    T::try_from(value).map_err(|_| BadValue::TooLarge { text: text.to_owned(), most: most() })
}

/// Reads a byte count: a number with an optional suffix `k`, `m` or `g` (1024 based, either case).
/// Without a suffix the number counts `unit` bytes: 1 for `-I`, 1 MiB for `-m`.
///
/// # Errors
///
/// As for [`number`]; `range` is in bytes. A refusal names the bound in the unit of `text`.
pub(crate) fn size(text: &str, unit: u64, range: RangeInclusive<u64>) -> Result<u64, BadValue> {
    let suffix = text.as_bytes().last().map(u8::to_ascii_lowercase);
    let suffix = SUFFIXES.iter().find(|(letter, _)| Some(*letter) == suffix);
    let (body, unit) = match suffix {
        Some((_, unit)) => (&text[..text.len() - 1], *unit),
        None => (text, unit),
    };
    let count = digits(body).ok_or_else(|| BadValue::NotASize(text.to_owned()))?;
    let told = |bound: u64| match suffix {
        None if bound.is_multiple_of(unit) => (bound / unit).to_string(),
        _ => with_suffix(bound),
    };
    match count.checked_mul(unit) {
        Some(value) => within(value, text, &range, told),
        None => Err(BadValue::TooLarge { text: text.to_owned(), most: told(*range.end()) }),
    }
}

/// A number within `range` in a file of the server that has its own messages, by the rules of the
/// command line; `None` if it is refused.
#[must_use]
pub fn number_in<T: TryFrom<u64>>(text: &str, range: RangeInclusive<u64>) -> Option<T> {
    number(text, range).ok()
}

/// The same for a byte count with an optional suffix `k`, `m` or `g`.
#[must_use]
pub fn size_in(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    size(text, 1, range).ok()
}

/// Suffixes of sizes, and the bytes that they stand for.
const SUFFIXES: [(u8, u64); 3] = [(b'k', 1 << 10), (b'm', 1 << 20), (b'g', 1 << 30)];

/// A number of bytes with the largest suffix that leaves a whole number.
fn with_suffix(bytes: u64) -> String {
    let fitting = SUFFIXES.iter().rev().find(|(_, unit)| bytes.is_multiple_of(*unit));
    fitting.map_or_else(
        || bytes.to_string(),
        |(letter, unit)| format!("{}{}", bytes / unit, char::from(*letter)),
    )
}

/// Reads an octal access mode of at most nine bits, as in `-a`.
///
/// # Errors
///
/// Fails if `text` is not one.
pub(crate) fn octal_mode(text: &str) -> Result<u32, BadValue> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if is_octal && mode <= 0o777 => Ok(mode),
        _ => Err(BadValue::NotAMode(text.to_owned())),
    }
}

/// Reads a finite decimal fraction over `above`.
///
/// # Errors
///
/// Fails if `text` is not one.
pub(crate) fn fraction(text: &str, above: f64) -> Result<f64, BadValue> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > above => Ok(value),
        _ => Err(BadValue::NotAbove { text: text.to_owned(), above }),
    }
}

fn digits(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// The value, if it is in the range; `told` formats a bound for the refusal.
fn within(
    value: u64,
    text: &str,
    range: &RangeInclusive<u64>,
    told: impl Fn(u64) -> String,
) -> Result<u64, BadValue> {
    let text = text.to_owned();
    if value < *range.start() {
        return Err(BadValue::TooSmall { text, least: told(*range.start()) });
    }
    if value > *range.end() {
        return Err(BadValue::TooLarge { text, most: told(*range.end()) });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_whole_or_refused() {
        assert_eq!(number::<u16>("0", 0..=10), Ok(0));
        assert_eq!(number::<u64>("18446744073709551615", 0..=u64::MAX), Ok(u64::MAX));
        for bad in ["", "+1", "-1", " 1", "1 ", "1x", "0x10", "1.5", "18446744073709551616"] {
            assert!(number::<u64>(bad, 0..=u64::MAX).is_err(), "{bad:?} was accepted");
        }
        assert!(number::<u16>("11", 0..=10).is_err());
        assert!(number::<u16>("0", 1..=10).is_err());
        assert!(number::<u8>("256", 0..=1000).is_err());
    }

    #[test]
    fn a_size_has_a_suffix_or_the_flags_own_unit() {
        let any = 0..=u64::MAX;
        assert_eq!(size("64", 1 << 20, any.clone()), Ok(64 << 20));
        assert_eq!(size("64m", 1 << 20, any.clone()), Ok(64 << 20));
        assert_eq!(size("1g", 1 << 20, any.clone()), Ok(1 << 30));
        assert_eq!(size("512K", 1, any.clone()), Ok(512 << 10));
        assert_eq!(size("1000", 1, any.clone()), Ok(1000));
        for bad in ["", "k", "1kb", "-1m", "18446744073709551615k", "1t"] {
            assert!(size(bad, 1, any.clone()).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn an_access_mode_is_octal() {
        assert_eq!(octal_mode("0700"), Ok(0o700));
        assert_eq!(octal_mode("777"), Ok(0o777));
        for bad in ["", "999", "1777", "+7", "rwx"] {
            assert!(octal_mode(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_growth_factor_is_finite_and_over_one() {
        assert_eq!(fraction("1.25", 1.0), Ok(1.25));
        for bad in ["1", "0.5", "inf", "NaN", "x", ""] {
            assert!(fraction(bad, 1.0).is_err(), "{bad:?} was accepted");
        }
    }
}
