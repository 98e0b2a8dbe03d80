//! Conversions of numbers that cannot fail.

use std::time::Duration;

/// `number` as another type of integer.
///
/// # Panics
///
/// When it does not fit. Callers have a bound that guarantees that it does.
#[inline]
#[must_use]
#[track_caller]
pub fn fits<T, U: TryFrom<T>>(number: T) -> U {
    let Ok(number) = U::try_from(number) else {
        panic!("a number is beyond the bound that was checked")
    };
    number
}

/// A time in nanoseconds; the maximum stands for 584 years and more.
#[must_use]
pub fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_saturate() {
        assert_eq!(nanos(Duration::new(2, 5)), 2_000_000_005);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "beyond the bound")]
    fn a_number_that_does_not_fit_is_a_fault() {
        let _: u8 = fits(256_u32);
    }
}
