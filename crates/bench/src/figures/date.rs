//! Dates in the form shown on a page.

/// The day of a time in seconds since 1970, in UTC. Empty for 0, which means no time, and after the
/// year 9999.
pub(super) fn day(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let years = if seconds == 0 { 0..0 } else { 1970..10_000_u64 };
    for year in years {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if is_leap { 29 } else { 28 };
        for (month, len) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
            if days < len {
                return format!("{year}-{month:02}-{:02}", days + 1);
            }
            days -= len;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_calendar_dates() {
        for (seconds, wanted) in [
            (0, ""),
            (1, "1970-01-01"),
            (86_400 * 59, "1970-03-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (4_107_542_400, "2100-03-01"),
            (1_767_225_599, "2025-12-31"),
            (253_402_300_799, "9999-12-31"),
            (253_402_300_800, ""),
            (u64::MAX, ""),
        ] {
            assert_eq!(day(seconds), wanted, "{seconds}");
        }
    }
}
