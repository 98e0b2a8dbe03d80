//! Chunk sizes of the classes.
//!
//! Sizes grow by the factor of `-f`. Each is then widened to what its page divides into evenly, so
//! that page tails are not wasted. The largest chunk is 16 KiB: larger items are chained, so all
//! large values share one class whatever their size. These are the regular classes; [`fitted`]
//! has more.
//!
//! [`fitted`]: super::fitted

use super::ClassId;
use crate::config::Config;
use arena::chunks::{CHUNK_BYTES_MAX, HEADER};
use arena::control::FITTED_MAX;

/// Granularity of `class_by_size`, in bytes; chunk sizes are multiples of it.
const SIZE_STEP: usize = 8;

/// Most regular classes of items: an id is one byte, 0 is no class, 255 is any, one class holds
/// heads, and some are fitted.
const CLASSES_MAX: usize = 253 - FITTED_MAX;

/// The class of the smallest chunks that hold each multiple of `SIZE_STEP`, by the chunk sizes and
/// ids of all. One of them is of `CHUNK_BYTES_MAX`.
pub(super) fn class_by_size(mut classes: Vec<(usize, ClassId)>) -> Vec<ClassId> {
    classes.sort_unstable();
    (0..=CHUNK_BYTES_MAX / SIZE_STEP)
        .map(|step| classes[classes.partition_point(|&(size, _)| size < step * SIZE_STEP)].1)
        .collect()
}

/// The entry of `class_by_size` for an item of `bytes`.
#[inline]
pub(super) fn size_index(bytes: usize) -> usize {
    bytes.div_ceil(SIZE_STEP)
}

/// A number of classes as an id.
pub(super) fn class_id(number: usize) -> ClassId {
    // Holds by `CLASSES_MAX`.
    assert!(number <= CLASSES_MAX + FITTED_MAX + 1, "more classes than ids: {number}");
    number.to_le_bytes()[0]
}

/// Chunk sizes in bytes, from the smallest to `CHUNK_BYTES_MAX`, each a multiple of `unit`.
pub(super) fn chunk_sizes(config: &Config, page: usize, unit: usize) -> Vec<usize> {
    let mut factor = config.growth_factor;
    loop {
        let sizes = sizes_by(config.chunk_bytes_min as usize, factor, page, unit);
        if sizes.len() <= CLASSES_MAX {
            return sizes;
        }
        // A factor this close to 1 makes more sizes than ids: take the next coarser one.
        factor += 0.01;
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes are below 16 KiB, far inside of both types"
)]
fn sizes_by(min: usize, factor: f64, page: usize, unit: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = (HEADER + min).next_multiple_of(unit);
    while size < CHUNK_BYTES_MAX {
        // The widest chunk of which the page holds as many.
        let even = (page / (page / size)) / unit * unit;
        sizes.push(even);
        // At least one unit more, however small the factor.
        size = ((even as f64 * factor) as usize / unit * unit).max(even + unit);
    }
    sizes.push(CHUNK_BYTES_MAX);
    sizes.dedup();
    sizes
}
