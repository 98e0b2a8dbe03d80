//! Recovery after a crash: finds every linked item, and nothing else.
//!
//! ```text
//!     table: each reference -> a whole item? its key's bucket and tag? first occurrence?
//!                              keep it, else clear the slot
//!     pages: each chunk     -> held by a kept item, or free
//!     bags:  each kept item -> a bag by the age of its mark, or of the bag that it was in
//! ```
//!
//! The table is authoritative: one store into its slot links an item, one replaces it, and one
//! unlinks it. So an item whose command was acknowledged is either there or not. It is whole,
//! because its bytes are written before that store and not changed until a grace period after it.
//! All other memory is rebuilt from the table. A second crash, during the recovery, changes nothing
//! of this.
//!
//! The recovery does not see memory that changed after the process died, since a store in use has
//! no digests. Keys, lengths, buckets and chains must agree with one another, which keeps the
//! process sound, but a flipped bit of a value is served. A crash of the machine is not covered
//! either, because pages reach a disk in any order: the caller recognises it by the note in the
//! file, and starts cold.
//!
//! Relaxed is enough: each thread of the recovery claims its buckets and pages by a counter, and
//! the end of the scope orders its work before the store is used.

use crate::expiry::transient::Note;
use crate::linked::key_left;
use crate::lru::recency;
use crate::lru::{self, BAGS_PER_TURNOVER, BagList, Dates};
use crate::slabs::{Chunks, ClassId};
use crate::store::Store;
use crate::table::{Judge, Marks};
use arena::ChunkRef;
use arena::blocks::Purpose;
use arena::chunks::{PIECE_AT, PIECE_BYTES, Shape, chain};
use arena::sync::{AtomicUsize, Mutex, Ordering};
use narrow::to_u32;
use std::ops::Range;
use std::thread;

/// Numbers of a recovery after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Items that were recovered.
    pub items: u64,
    /// Dropped, because they have expired.
    pub expired: u64,
    /// Dropped, because they were invalidated by a flush.
    pub flushed: u64,
    /// Dropped, because they were deleted and only readable as stale.
    pub deleted: u64,
    /// References dropped because they were met twice, or in the wrong place: interrupted moves
    /// within the table.
    pub misplaced: u64,
    /// References dropped because they led to no whole item.
    pub damaged: u64,
}

/// Findings of one thread.
struct Finder<'s> {
    store: &'s Store,
    chunks: &'s Chunks,
    now_secs: u32,
    found: Recovered,
    classes: Vec<OfClass>,
}

/// Items of one class.
#[derive(Clone, Default)]
struct OfClass {
    items: i64,
    bytes: i64,
    /// Items by the age of their mark; empty before the first.
    ages: Vec<u32>,
}

/// Buckets, or pages, that a thread takes together.
const BUCKETS_TOGETHER: usize = 4096;
const PAGES_TOGETHER: usize = 16;

/// Recovers the store that a dead process left. `None`: it is inconsistent. No other thread uses
/// the store.
pub(crate) fn recover(store: &Store, now_secs: u32) -> Option<Recovered> {
    store.invalidations.count_unfinished();
    let purged = store.invalidations.begin_purge();
    let initially = store.table.bytes() as u64;
    let reached = store.table.begin_recovery()?;
    let chunks = store.slabs.begin_recovery(&store.arena)?;
    let (found, classes, kept) = find_items(store, &reached, &chunks, now_secs);
    store.table.end_recovery(kept, &reached)?;
    store.budget.give_back(initially);
    // The file has room for its contents.
    let _ = store.budget.take(store.table.bytes() as u64, || true);
    store.blocks.forget();
    if !put_in_order(store, &chunks, &classes, now_secs) {
        return None;
    }
    store.slabs.end_recovery(&store.arena, &chunks, &store.budget);
    // Buckets by a damaged directory may leave no memory for items. The smallest items have buckets
    // of 22 % of the limit; if that was raised since, the pages take more than they do.
    let index = store.table.bytes() as u64;
    if index > initially.max(store.budget.limit() / 2).max(store.slabs.bytes()) {
        return None;
    }
    for (id, class) in (1..).zip(&classes) {
        store.counters.of_thread(0).add_items(id, class.items, class.bytes);
    }
    store.invalidations.end_purge(purged);
    Some(Recovered { items: kept as u64, ..found })
}

/// Walks the table on all processors.
fn find_items(
    store: &Store,
    reached: &Marks,
    chunks: &Chunks,
    now_secs: u32,
) -> (Recovered, Vec<OfClass>, usize) {
    let classes = vec![OfClass::default(); usize::from(store.slabs.count())];
    let all = Mutex::new((Recovered::default(), classes, 0));
    let next = AtomicUsize::new(0);
    on_all_processors(|| {
        let mut finder = Finder::new(store, chunks, now_secs);
        let mut kept = 0;
        while let Some(homes) = take(&next, BUCKETS_TOGETHER, store.table.buckets()) {
            kept += store.table.recover(homes, reached, &mut finder);
        }
        let mut all = all.lock();
        all.0.add(&finder.found);
        all.1.iter_mut().zip(&finder.classes).for_each(|(sum, part)| sum.add(part));
        all.2 += kept;
    });
    all.into_inner()
}

/// Puts chunks into free lists and items into bags, on all processors. `false`: the file system is
/// full.
fn put_in_order(store: &Store, chunks: &Chunks, classes: &[OfClass], now_secs: u32) -> bool {
    let bytes_per_tick = store.budget.limit() / BAGS_PER_TURNOVER;
    let dates =
        |list: &BagList| Dates { clocks: store.clocks(list.id()), bytes_per_tick, now_secs };
    let bag_of: Vec<Vec<u8>> = store
        .lists
        .iter()
        .zip(classes)
        .map(|(list, class)| match class.items {
            0 => Vec::new(),
            _ => list.recover(&class.ages, dates(list)),
        })
        .collect();
    let (next, homeless) = (AtomicUsize::new(0), AtomicUsize::new(0));
    on_all_processors(|| {
        let mut notes = Vec::new();
        while let Some(pages) = take(&next, PAGES_TOGETHER, chunks.pages()) {
            for page in pages {
                store.slabs.recover_page(&store.arena, chunks, page, |id, chunk| {
                    let header = store.arena.header(chunk);
                    let mark = recency::mark_of(header.recency.load(Ordering::Relaxed));
                    let age = lru::age_of(mark, 0, store.tick(id));
                    let bag = bag_of[usize::from(id) - 1][age];
                    if !put_into_bag(store, id, bag, chunk) {
                        homeless.fetch_add(1, Ordering::Relaxed);
                    }
                    notes.push(Note { deadline: header.deadline.load(Ordering::Relaxed), chunk });
                });
                store.transients.refile(&store.blocks, &store.budget, &mut notes, now_secs);
            }
        }
    });
    homeless.into_inner() == 0
}

/// No pass is under way, so the order of the bags need not be locked for this.
fn put_into_bag(store: &Store, id: ClassId, bag: u8, chunk: ChunkRef) -> bool {
    let position = store.list(id).append(&store.blocks, &store.budget, bag, chunk, Purpose::Item);
    store.arena.header(chunk).pos.store(position.unwrap_or(0), Ordering::Relaxed);
    position.is_some()
}

impl<'s> Finder<'s> {
    fn new(store: &'s Store, chunks: &'s Chunks, now_secs: u32) -> Self {
        let classes = vec![OfClass::default(); usize::from(store.slabs.count())];
        Self { store, chunks, now_secs, found: Recovered::default(), classes }
    }

    /// The item's class, number of its chunk, and shape, if there is a whole one.
    fn item(&self, chunk: ChunkRef) -> Option<(ClassId, usize, Shape)> {
        let (id, number) = self.store.slabs.place(&self.store.arena, self.chunks, chunk)?;
        let shape = self.store.arena.header(chunk).shape();
        let is_chained = id == self.store.slabs.heads();
        let is_whole = (1..=crate::draft::KEY_BYTES_MAX).contains(&shape.key_len())
            && shape.is_chained() == is_chained
            && shape.end_with_stamp() <= self.store.slabs.class(id).chunk_bytes();
        is_whole.then_some((id, number, shape))
    }

    /// Takes the pieces of a chained value; `None` if they do not make up the whole of it.
    fn hold_pieces(&self, head: ChunkRef) -> Option<u32> {
        let (arena, slabs) = (&self.store.arena, &self.store.slabs);
        let header = arena.header(head);
        let len = arena.word(header, chain::VALUE_LEN).load(Ordering::Relaxed);
        let mut piece = arena.word(header, chain::FIRST).load(Ordering::Relaxed);
        let (mut left, mut held) = (len as usize, Vec::new());
        let is_whole = loop {
            if piece == 0 {
                break left == 0;
            }
            let Some((id, number)) = slabs.place(arena, self.chunks, piece) else { break false };
            let (of_piece, (next, bytes)) = (arena.header(piece), arena.piece(piece));
            let fits = bytes == left.min(PIECE_BYTES)
                && bytes > 0
                && bytes + PIECE_AT <= slabs.class(id).chunk_bytes()
                && of_piece.shape() == Shape(Shape::PIECE)
                && of_piece.recency.load(Ordering::Relaxed) == head;
            if !fits || !self.chunks.hold(number) {
                break false;
            }
            held.push(number);
            (piece, left) = (next, left - bytes);
        };
        if !is_whole {
            held.into_iter().for_each(|number| self.chunks.let_go(number));
            return None;
        }
        arena.word(header, chain::PINS).store(0, Ordering::Relaxed);
        Some(len)
    }

    /// The item's age, in ticks. From now on its mark shows the age, because the bags' blocks will
    /// be forgotten.
    fn date(&self, id: ClassId, chunk: ChunkRef) -> usize {
        let (store, header) = (self.store, self.store.arena.header(chunk));
        let bag_opened = store.blocks.opened_tick_left(header.pos.load(Ordering::Relaxed));
        let (seen, now) = (header.recency.load(Ordering::Relaxed), store.tick(id));
        let age = lru::age_of(recency::mark_of(seen), bag_opened, now);
        recency::set_mark(&header.recency, seen, recency::mark_at(now - age as u64));
        // The tick of that age may have no mark.
        lru::age_of(recency::mark_of(header.recency.load(Ordering::Relaxed)), 0, now)
    }

    /// `true` if the item is neither flushed, deleted nor expired; counts it otherwise.
    fn is_live(&mut self, chunk: ChunkRef, shape: Shape) -> bool {
        let (store, header) = (self.store, self.store.arena.header(chunk));
        let deadline = header.deadline.load(Ordering::Relaxed);
        let key = key_left(store, chunk, shape);
        let stamp = || store.arena.word(header, shape.stamp_at()).load(Ordering::Relaxed);
        let birth = store.invalidations.born(shape.birth(), stamp);
        if store.invalidations.hits(key, birth, |prefix| store.hash(prefix)) {
            self.found.flushed += 1;
            return false;
        }
        if shape.has(Shape::DELETED) {
            self.found.deleted += 1;
            return false;
        }
        if deadline != 0 && deadline <= self.now_secs {
            self.found.expired += 1;
            return false;
        }
        let (code, newest) = store.invalidations.newest();
        // A page that is only read is mapped together with its neighbours.
        if birth < newest {
            header.shape.store(shape.with_birth(code).0, Ordering::Relaxed);
        }
        true
    }
}

impl Judge for Finder<'_> {
    fn hash(&mut self, chunk: ChunkRef) -> Option<u64> {
        let Some((_, _, shape)) = self.item(chunk) else {
            self.found.damaged += 1;
            return None;
        };
        Some(self.store.hash(key_left(self.store, chunk, shape)))
    }

    fn claim(&mut self, chunk: ChunkRef) -> bool {
        let Some((id, number, shape)) = self.item(chunk) else { return false };
        if !self.is_live(chunk, shape) {
            return false;
        }
        if !self.chunks.hold(number) {
            self.found.misplaced += 1;
            return false;
        }
        let mut chained = 0;
        if shape.is_chained() {
            let Some(len) = self.hold_pieces(chunk) else {
                self.chunks.let_go(number);
                self.found.damaged += 1;
                return false;
            };
            chained = i64::from(len);
        }
        let age = self.date(id, chunk);
        let bytes = shape.end();
        let class = &mut self.classes[usize::from(id) - 1];
        class.items += 1;
        class.bytes += i64::from(to_u32(bytes)) + chained;
        class.ages.resize(lru::AGES, 0);
        class.ages[age] += 1;
        true
    }

    fn misplaced(&mut self) {
        self.found.misplaced += 1;
    }

    fn prefetch(&self, chunk: ChunkRef) {
        if self.store.slabs.place(&self.store.arena, self.chunks, chunk).is_some() {
            self.store.arena.prefetch_item(chunk);
        }
    }
}

impl Recovered {
    fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.expired += other.expired;
        self.flushed += other.flushed;
        self.deleted += other.deleted;
        self.misplaced += other.misplaced;
        self.damaged += other.damaged;
    }
}

impl OfClass {
    fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.bytes += other.bytes;
        if !other.ages.is_empty() {
            self.ages.resize(lru::AGES, 0);
            self.ages.iter_mut().zip(&other.ages).for_each(|(sum, part)| *sum += part);
        }
    }
}

/// The next few numbers below `end` that no thread has taken.
fn take(next: &AtomicUsize, together: usize, end: usize) -> Option<Range<usize>> {
    let first = next.fetch_add(together, Ordering::Relaxed);
    (first < end).then(|| first..end.min(first + together))
}

fn on_all_processors(work: impl Fn() + Sync) {
    let threads =
        thread::available_parallelism().map_or(1, usize::from).min(crate::file::THREADS_MAX);
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(&work);
        }
        work();
    });
}
