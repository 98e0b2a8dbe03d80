//! A store's regions: anonymous memory, or parts of one file behind its header.
//!
//! ```text
//!     header | control | invalidations | directory | class of each page | buckets
//!            | overflow buckets | bag blocks | pages
//! ```
//!
//! The file is as long as everything that may ever be used. Only the used parts take disk space.

use crate::config::Layout;
use crate::table::{self, Bucket};
use arena::chunks::SLACK_BYTES;
use arena::control::Control;
use arena::names::Names;
use arena::region::{AnyBytes, Region};
use arena::sync::{AtomicU32, AtomicU64};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Every region of one store.
#[derive(Debug)]
pub(crate) struct Memory {
    pub control: Region<Control>,
    pub invalidations: Region<AtomicU64>,
    pub page_class: Region<AtomicU32>,
    /// Never in the file: the contents of a page are found by a walk, or recorded at a clean end.
    pub page_cut: Region<AtomicU32>,
    pub table: table::Memory,
    pub blocks: Region<AtomicU32>,
    pub arena: Region<AtomicU64>,
    /// Never in the file, because it follows from the class of each page.
    pub names: Names,
}

/// First byte of each region in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offsets {
    pub control: u64,
    pub invalidations: u64,
    pub directory: u64,
    pub page_class: u64,
    pub buckets: u64,
    pub overflow: u64,
    pub blocks: u64,
    pub arena: u64,
    /// The file's length.
    pub end: u64,
}

/// Regions start at multiples of this, which any page of a Linux system divides or equals.
const ALIGNMENT: u64 = 64 << 10;

impl Memory {
    /// Anonymous memory, none of it resident.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub(crate) fn anonymous(layout: &Layout) -> io::Result<Self> {
        Ok(Self {
            control: Region::reserve(1)?,
            invalidations: Region::reserve(layout.invalidation_words)?,
            page_class: Region::reserve(layout.pages_max)?,
            page_cut: Region::reserve(layout.pages_max)?,
            table: table::Memory::reserve(&layout.table)?,
            blocks: Region::reserve(layout.block_words)?,
            arena: Region::reserve(layout.arena_words())?,
            names: layout.names()?,
        })
    }

    /// Parts of a file that is at least `Offsets::end` bytes long.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    #[cfg_attr(miri, allow(dead_code, reason = "Miri maps no files"))]
    pub(crate) fn in_file(layout: &Layout, file: &Arc<File>) -> io::Result<Self> {
        let at = Offsets::of(layout);
        let shape = &layout.table;
        Ok(Self {
            control: Region::in_file(file, at.control, 1)?,
            invalidations: Region::in_file(file, at.invalidations, layout.invalidation_words)?,
            page_class: Region::in_file(file, at.page_class, layout.pages_max)?,
            page_cut: Region::reserve(layout.pages_max)?,
            table: table::Memory {
                directory: Region::in_file(file, at.directory, 1)?,
                buckets: Region::in_file(file, at.buckets, shape.buckets_max)?,
                overflow: Region::in_file(file, at.overflow, shape.overflow_max)?,
            },
            blocks: Region::in_file(file, at.blocks, layout.block_words)?,
            arena: Region::in_file(file, at.arena, layout.arena_words())?,
            names: layout.names()?,
        })
    }
}

impl Offsets {
    #[cfg_attr(miri, allow(dead_code, reason = "Miri maps no files"))]
    pub(crate) fn of(layout: &Layout) -> Self {
        let mut end = ALIGNMENT;
        let mut next = |bytes: usize| {
            let at = end;
            end += (bytes as u64).next_multiple_of(ALIGNMENT);
            at
        };
        let mut at = Self {
            control: next(size_of::<Control>()),
            invalidations: next(bytes_of::<AtomicU64>(layout.invalidation_words)),
            directory: next(size_of::<AtomicU64>()),
            page_class: next(bytes_of::<AtomicU32>(layout.pages_max)),
            buckets: next(bytes_of::<Bucket>(layout.table.buckets_max)),
            overflow: next(bytes_of::<Bucket>(layout.table.overflow_max)),
            blocks: next(bytes_of::<AtomicU32>(layout.block_words)),
            arena: next(bytes_of::<AtomicU64>(layout.arena_words())),
            end: 0,
        };
        at.end = end;
        at
    }
}

fn bytes_of<T: AnyBytes>(len: usize) -> usize {
    len * size_of::<T>()
}

impl Layout {
    /// Words of all pages, with slack behind the last: an outdated reference must also have room
    /// for a header and a key behind it.
    pub(crate) fn arena_words(&self) -> usize {
        (self.pages_max * self.page_bytes + SLACK_BYTES) / size_of::<AtomicU64>()
    }

    fn names(&self) -> io::Result<Names> {
        let Some(bits) = self.place_bits else { return Ok(Names::by_offset(self.page_bytes)) };
        Ok(Names::by_place(self.page_bytes, bits, Region::reserve(self.pages_max)?))
    }
}
