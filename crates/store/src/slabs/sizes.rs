//! Chunk sizes of the classes.
//!
//! Sizes grow by the factor of `-f`. Each is then widened until its page divides evenly, so that
//! page tails are not wasted. The largest chunk is 16 KiB: larger items are chained, so all large
//! values share one class. These are the regular classes; [`fitted`] adds more.
//!
//! [`fitted`]: super::fitted

use super::ClassId;
use crate::config::{Config, Layout};
use arena::chunks::{CHUNK_BYTES_MAX, HEADER};
use arena::control::FITTED_MAX;
use arena::names::ALIGNMENT;

/// Granularity of `class_by_size`, in bytes; chunk sizes are multiples of it.
const SIZE_STEP: usize = 8;

/// Maximum number of regular classes of items: an id is one byte, 0 is no class, 255 is any, one
/// class holds heads, and some are fitted.
const CLASSES_MAX: usize = 253 - FITTED_MAX;

/// The class of the smallest chunks that hold each multiple of `SIZE_STEP`, from the chunk sizes
/// and ids of all classes. One of them has `CHUNK_BYTES_MAX`.
pub(super) fn class_by_size(mut classes: Vec<(usize, ClassId)>) -> Vec<ClassId> {
    classes.sort_unstable();
    let mut map = Vec::with_capacity(CHUNK_BYTES_MAX / SIZE_STEP + 1);
    for (size, id) in classes {
        map.resize(size / SIZE_STEP + 1, id);
    }
    map
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

/// The widest chunk size of which a page holds as many chunks as of this size.
pub(super) fn widened(page: usize, size: usize) -> usize {
    let size = size.next_multiple_of(ALIGNMENT);
    (page / (page / size)) / ALIGNMENT * ALIGNMENT
}

/// Chunk sizes in bytes, from the smallest to `CHUNK_BYTES_MAX`.
pub(super) fn chunk_sizes(config: &Config, layout: &Layout) -> Vec<usize> {
    let min = (HEADER + config.chunk_bytes_min as usize).max(layout.chunk_bytes_least);
    let mut factor = config.growth_factor;
    loop {
        let sizes = sizes_by(min, factor, layout.page_bytes);
        if sizes.len() <= CLASSES_MAX {
            return sizes;
        }
        // A factor this close to 1 makes more sizes than ids: use the next coarser one.
        factor += 0.01;
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "sizes are below 16 KiB, far inside of both types"
)]
fn sizes_by(min: usize, factor: f64, page: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = min.next_multiple_of(ALIGNMENT);
    while size < CHUNK_BYTES_MAX {
        let even = widened(page, size);
        sizes.push(even);
        // Larger than the previous size, however small the factor.
        size = ((even as f64 * factor) as usize / ALIGNMENT * ALIGNMENT).max(even + ALIGNMENT);
    }
    sizes.push(CHUNK_BYTES_MAX);
    sizes.dedup();
    sizes
}
