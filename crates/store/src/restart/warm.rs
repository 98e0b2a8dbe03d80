//! Opens a store over a memory file, and closes it so that the next start takes it over at once.
//!
//! ```text
//!     open:   header says "in use" -> cold: all zero
//!                                  -> clean: record and digests hold -> take over; else cold
//!                                  -> crashed: `recover`; if that makes no sense, cold
//!     close:  no threads left -> digests of all pages -> record -> header says "clean"
//! ```
//!
//! A start trusts only file contents that a digest or a check covers, and every check takes time at
//! most proportional to the file. A clean end writes down the state that cannot be read quickly
//! from the mapped bytes: heads of lists, counts, and the order of the bags.

use super::recover::{Recovered, recover};
use crate::config::regions::{Memory, Offsets};
use crate::config::{Config, Layout};
use crate::error::{LimitError, StoreError};
use crate::file::{Found, MemoryFile, TimeNote, digests};
use crate::stats::Count;
use crate::store::Store;
use arena::chunks::HEADER;
use arena::codec::{Reader, Writer};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use thiserror::Error;

/// The use made of a memory file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The store is empty. Without a reason: the file was new.
    Cold(Option<String>),
    /// Everything is there: this many items.
    Warm(u64),
    /// The last owner died; everything that was linked then is there.
    Recovered(Recovered),
}

/// The reason for which a store's memory could not be closed. The next start recovers it as after
/// a crash.
#[derive(Debug, Error)]
pub enum CloseError {
    /// A thread still uses the store.
    #[error("it is still in use")]
    InUse,
    /// The system's refusal.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A page of the system; the holes of a file are no finer.
const FILE_PAGE_BYTES: u64 = 4096;

impl Store {
    /// A store over a memory file, with the file's content if that is usable. `now` is the present
    /// moment; its `secs` is the second that the clock of this store's threads shows from now on.
    ///
    /// A limit other than the one that the file was made with is set as by
    /// [`set_memory_limit`](Self::set_memory_limit).
    ///
    /// # Errors
    ///
    /// The file cannot be mapped or written. Memory passed on by another process does not fit into
    /// the limit: that process can continue with it.
    pub fn open(
        config: &Config,
        mut file: MemoryFile,
        now: TimeNote,
    ) -> Result<(Arc<Self>, Opened), StoreError> {
        let layout = Layout::new(config)?;
        let mut opened = match file.found().clone() {
            Found::Cold(reason) => Opened::Cold(reason),
            found if !file.is_whole()? => {
                let which = if matches!(found, Found::Clean(_)) { "" } else { " after a crash" };
                Opened::Cold(Some(format!("it was cut off{which}")))
            }
            _ => Opened::Warm(0),
        };
        if opened == Opened::Warm(0) {
            let reason = match take_over(config, &mut file, now)? {
                Ok((store, opened)) => {
                    *store.file.lock() = Some(file);
                    return Ok((Arc::new(store), opened));
                }
                Err(reason) => reason,
            };
            opened = Opened::Cold(Some(reason));
        }
        file.clear(config, &layout)?;
        let store = Self::over(config, &layout, map_regions(&layout, &file)?, config.seed)?;
        file.begin(file.starts() + 1, config.seed, now)?;
        *store.file.lock() = Some(file);
        Ok((Arc::new(store), opened))
    }

    /// Leaves the memory in good order for the next start. With a `ticket` other than zero the
    /// pages get no digests, which take a second for some ten gigabytes, and only a process that
    /// has the ticket trusts them: the successor.
    ///
    /// Does nothing to a store without a file.
    ///
    /// # Errors
    ///
    /// The memory is in the state after a crash: a thread still uses the store, or the file cannot
    /// be written.
    pub fn close(self: &Arc<Self>, now: TimeNote, ticket: u64) -> Result<(), CloseError> {
        let mut file = self.file.lock();
        let Some(file) = file.as_mut() else { return Ok(()) };
        if !self.qsbr.is_empty() {
            return Err(CloseError::InUse);
        }
        let handle = self.join().ok_or(CloseError::InUse)?;
        handle.begin_turn(now.secs);
        handle.thread.adopt();
        handle.thread.settle();
        drop(handle);
        if !self.orphans.lock().is_empty() {
            return Err(CloseError::InUse);
        }
        let mut record = Writer::default();
        save(self, &mut record);
        let layout = self.layout;
        let found = match ticket {
            0 => digests(file.file(), &ranges(self, &layout))?,
            _ => Vec::new(),
        };
        record.numbers(found.into_iter());
        file.end(&record.bytes, now, ticket)?;
        Ok(())
    }

    /// Number of times that a store was opened over this one's memory; 0 without a file.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.file.lock().as_ref().map_or(0, MemoryFile::starts)
    }

    /// The number of the file's format; `None` without a file. A successor that can take the file
    /// over gets the same from [`MemoryFile::format`].
    #[must_use]
    pub fn format(&self) -> Option<u64> {
        self.file.lock().as_ref().map(MemoryFile::own_format)
    }

    /// Duplicates the open file, for a successor; `None` without a file.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub fn share_file(&self) -> io::Result<Option<std::os::fd::OwnedFd>> {
        self.file.lock().as_ref().map(MemoryFile::share).transpose()
    }
}

fn map_regions(layout: &Layout, file: &MemoryFile) -> Result<Memory, StoreError> {
    let memory = Memory::in_file(layout, file.file())?;
    let has_room = memory.control.commit(0, 1)
        && memory.invalidations.commit(0, layout.invalidation_words)
        && memory.table.directory.commit(0, 1)
        && memory.page_class.commit(0, layout.pages_max);
    if has_room { Ok(memory) } else { Err(io::Error::from(io::ErrorKind::StorageFull).into()) }
}

/// The store that a file holds, or the reason why it is unusable.
fn take_over(
    config: &Config,
    file: &mut MemoryFile,
    now: TimeNote,
) -> Result<Result<(Store, Opened), String>, StoreError> {
    let is_clean = matches!(file.found(), Found::Clean(_));
    let Some(seed) = file.seed() else { return Ok(Err("it has no header".to_owned())) };
    let record = if is_clean { file.record()? } else { Some(Vec::new()) };
    let Some(record) = record else {
        return Ok(Err("what its last owner wrote down at the end is damaged".to_owned()));
    };
    let layout = file.layout();
    let made_with = Config { memory_bytes: file.layout_bytes(), ..config.clone() };
    let store = Store::over(&made_with, &layout, map_regions(&layout, file)?, seed)?;
    if store.control().has_unfinished_flush() {
        return Ok(Err("its last owner was flushing everything".to_owned()));
    }
    let found = if is_clean {
        restore(&store, file, &record)?
    } else {
        let recovered = recover(&store, now.secs).map(Opened::Recovered);
        recovered.ok_or("its last owner crashed, and what it left makes no sense")
    };
    let opened = match found {
        Ok(opened) => opened,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    match limit(&store, config) {
        Ok(()) => {}
        // A predecessor waits, and the header still says that it has left everything in order.
        Err(error) if is_clean && !file.has_digests() => return Err(error.into()),
        Err(error) => return Ok(Err(format!("-m is {}, but {error}", config.memory_bytes))),
    }
    file.begin(file.starts() + 1, seed, now)?;
    Ok(Ok((store, opened)))
}

/// Loads the record of the last owner's clean end, or returns the reason why it cannot be trusted.
fn restore(
    store: &Store,
    file: &MemoryFile,
    record: &[u8],
) -> io::Result<Result<Opened, &'static str>> {
    let mut reader = Reader::new(record);
    if load(store, &mut reader).is_none() {
        return Ok(Err("what its last owner wrote down makes no sense"));
    }
    let then: Vec<u64> = reader.numbers().unwrap_or_default();
    if file.has_digests() && digests(file.file(), &ranges(store, &file.layout()))? != then {
        return Ok(Err("its pages are damaged"));
    }
    Ok(Ok(Opened::Warm(store.stats().items)))
}

/// Sets the limit of a store in a file, if it differs from the limit that the file was made with.
fn limit(store: &Store, config: &Config) -> Result<(), LimitError> {
    if config.memory_bytes == store.budget.limit() {
        return Ok(());
    }
    store.set_memory_limit(config.memory_bytes)
}

fn save(store: &Store, out: &mut Writer) {
    out.count(HEADER);
    store.slabs.save(out);
    store.blocks.save(out);
    store.table.save(out);
    store.transients.save(out);
    store.deleted.save(out);
    for list in &store.lists {
        list.save(out);
    }
    for class in 1..=store.slabs.count() {
        out.number(store.counters.of_class(class, Count::Items));
        out.number(store.counters.of_class(class, Count::Bytes));
    }
}

fn load(store: &Store, input: &mut Reader<'_>) -> Option<()> {
    input.number().filter(|&header| header == HEADER as u64)?;
    store.slabs.load(input, &store.arena, &store.budget)?;
    store.blocks.load(input, &store.budget)?;
    let charged = store.table.bytes() as u64;
    store.table.load(input)?;
    store.budget.give_back(charged);
    // The file has room for its contents.
    let _ = store.budget.take(store.table.bytes() as u64, || true);
    store.transients.load(input, &store.blocks)?;
    store.deleted.load(input, &store.budget)?;
    for list in &store.lists {
        list.load(input, &store.blocks)?;
    }
    for class in 1..=store.slabs.count() {
        store.counters.of_thread(0).add_items(class, input.small()?, input.small()?);
    }
    Some(())
}

/// The used parts of the file, except the header: whole pages, because the bytes behind the last
/// object in a page come into use unchanged.
fn ranges(store: &Store, layout: &Layout) -> [Range<u64>; 6] {
    let at = Offsets::of(layout);
    let (buckets, overflow) = store.table.touched_bytes();
    let range = |start: u64, bytes: u64| start..start + bytes.next_multiple_of(FILE_PAGE_BYTES);
    [
        at.control..at.page_class,
        range(at.page_class, layout.pages_max as u64 * 4),
        range(at.buckets, buckets),
        range(at.overflow, overflow),
        range(at.blocks, store.blocks.touched_bytes()),
        range(at.arena, store.slabs.touched_bytes()),
    ]
}
