//! Digests of a file, computed for each segment on all processors.
//!
//! The file is read, not mapped: reads cause no page faults, and on tmpfs they cost little more
//! than the copy into a cache.
//!
//! Relaxed is enough for the number of the next segment: each thread needs a distinct number, and
//! the end of the scope orders the results.

use super::header::digest;
use narrow::to_usize;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Bytes covered by one digest.
const SEGMENT_BYTES: usize = 1 << 20;
/// Bytes read together: they stay in the processor's cache until they are digested.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of threads.
pub(crate) const THREADS_MAX: usize = 32;

/// The digests of the ranges of `file`, in order.
///
/// # Errors
///
/// The file cannot be read, or is shorter.
pub(crate) fn digests(file: &File, ranges: &[Range<u64>]) -> io::Result<Vec<u64>> {
    let segments: Vec<Range<u64>> = ranges.iter().cloned().flat_map(split).collect();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(THREADS_MAX).min(segments.len().div_ceil(4)).max(1);
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<Vec<(usize, u64)>> {
        let mut buffer = vec![0; READ_BYTES];
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(segment) = segments.get(at) else { return Ok(done) };
            done.push((at, one(file, segment, &mut buffer)?));
        }
    };
    let parts: io::Result<Vec<_>> = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut parts = vec![work()];
        parts.extend(helpers.into_iter().map(|helper| match helper.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        parts.into_iter().collect()
    });
    let mut found = vec![0; segments.len()];
    for (at, digest) in parts?.into_iter().flatten() {
        found[at] = digest;
    }
    Ok(found)
}

fn split(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(SEGMENT_BYTES).map(move |start| start..end.min(start + SEGMENT_BYTES as u64))
}

fn one(file: &File, segment: &Range<u64>, buffer: &mut [u8]) -> io::Result<u64> {
    let (mut at, mut sum) = (segment.start, 0u64);
    while at < segment.end {
        // At most `SEGMENT_BYTES`.
        let len = to_usize(segment.end - at).min(buffer.len());
        let part = &mut buffer[..len];
        file.read_exact_at(part, at)?;
        sum = sum.rotate_left(23) ^ digest(part);
        at += len as u64;
    }
    Ok(sum)
}
