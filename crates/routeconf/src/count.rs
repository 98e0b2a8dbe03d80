//! Counts of items in a configuration.

/// A number of pools, routes or servers, or the place of one.
///
/// # Panics
///
/// From 2^32 on. Each item takes some bytes of a text of at most [`crate::FILE_BYTES_MAX`].
pub(crate) fn count(number: usize) -> u32 {
    let Ok(count) = u32::try_from(number) else { panic!("{number} things in one configuration") };
    count
}
