//! Settings of a store, and the sizes that follow from the memory limit.

pub(crate) mod regions;

use crate::error::StoreError;
use crate::expiry::invalidation;
pub use crate::lru::tuning::Policy;
use crate::table::Shape as TableShape;
use arena::names::ALIGNMENT;

/// The policy that moves pages between slab classes automatically (`slabs automove`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Automove {
    /// Only if a class has nothing to evict.
    Off,
    /// By the rule of "Scaling Memcache at Facebook": when a class evicts items clearly younger
    /// than another class's next victim.
    #[default]
    Age,
    /// Whenever a class evicts items younger than another class's oldest.
    Eager,
}

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that items, index, bags and charged buffers may use together (`-m`).
    pub memory_bytes: u64,
    /// Largest item: header, key and value, in bytes (`-I`).
    pub item_bytes_max: u64,
    /// Ratio of neighbouring chunk sizes (`-f`), over 1.0.
    pub growth_factor: f64,
    /// Room for flags, key and value in the smallest chunk, in bytes (`-n`).
    pub chunk_bytes_min: u32,
    /// `false` (`-M`): a full store refuses instead of evicting.
    pub evict: bool,
    /// Order of eviction.
    pub policy: Policy,
    /// Remaining life, in seconds, up to which an item is freed in the second in which it expires;
    /// 0: none is. At most [`TRANSIENT_SECS_MAX`](crate::TRANSIENT_SECS_MAX).
    pub transient_secs: u32,
    /// Rule by which pages move between classes.
    pub automove: Automove,
    /// Age of a class's next victim up to which the class gets pages, in thousandths of the oldest
    /// of the others'.
    pub automove_ratio_per_mille: u32,
    /// Striped locks of the table, a power of two: the Z of Wiggins and Langston. A small store has
    /// fewer. A store over a file with fewer keeps them, unless its index has grown.
    pub stripes: usize,
    /// Ask for huge pages under items and index (`-L`).
    pub huge_pages: bool,
    /// Spread items and index over the memory nodes of the machine.
    pub numa_interleave: bool,
    /// Name chunks by page and place at any limit, as from 16 GB on (see [`arena::names`]): for
    /// tests, which have less memory.
    pub by_place: bool,
    /// Maximum number of threads that may use the store at one time, the cleaner included.
    pub threads_max: usize,
    /// Seed of the key hash.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            growth_factor: 1.07,
            chunk_bytes_min: 16,
            evict: true,
            policy: Policy::Auto,
            transient_secs: 300,
            automove: Automove::Age,
            automove_ratio_per_mille: 900,
            stripes: 256,
            huge_pages: false,
            numa_interleave: false,
            by_place: false,
            threads_max: 16,
            seed: 0,
        }
    }
}

/// Sizes fixed for the life of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bytes of one page, a power of two. Small stores have small pages, so that many classes fit.
    pub page_bytes: usize,
    /// Pages reserved, not resident: the limit to which `cache_memlimit` can grow.
    pub pages_max: usize,
    /// Bits of a place if references name pages and places; `None` if they are offsets. A reference
    /// has 31 bits.
    pub place_bits: Option<u32>,
    /// Bytes of the smallest chunk for which a page has enough places.
    pub chunk_bytes_least: usize,
    /// Words of the invalidations.
    pub invalidation_words: usize,
    /// Words reserved for bag blocks.
    pub block_words: usize,
    /// Items of the minimum size that fit into the reserved pages.
    pub items_max: u64,
    /// Size of the table, and the size to which it may grow.
    pub table: TableShape,
}

const MIB: u64 = 1 << 20;
/// Bits of a reference.
const REFERENCE_BITS: u32 = 31;
const REFERENCES_MAX: u64 = (1 << REFERENCE_BITS) - 2;
/// Maximum number of bits of a place: hardly any item has chunks of less than 64 bytes, and pages
/// that references reach beyond the limit are room to grow.
const PLACE_BITS_MAX: u32 = 14;
/// A position in the bag blocks has 32 bits.
const BLOCK_WORDS_MAX: u64 = (1 << 32) - 64;
/// Buckets for as many items as there are references, at eight per bucket.
const BUCKETS_MAX: u64 = 1 << 28;

impl Layout {
    /// Computes the sizes from the limit.
    ///
    /// # Errors
    ///
    /// A setting out of range.
    pub(crate) fn new(config: &Config) -> Result<Self, StoreError> {
        check(config)?;
        let limit = config.memory_bytes;
        let page_bytes = page_bytes(limit);
        let place_bits = place_bits(config);
        let within_reach = match place_bits {
            None => ALIGNMENT as u64 * REFERENCES_MAX,
            Some(bits) => page_bytes << (REFERENCE_BITS - bits),
        };
        // Room to grow four-fold by `cache_memlimit`, but never at the cost of larger chunks.
        let reserve = (limit * 4).min(within_reach) / page_bytes * page_bytes;
        let word = |bytes: u64| usize::try_from(bytes).map_err(|_| StoreError::Config(TOO_LARGE));
        let buckets = (reserve / 32 / 8).next_power_of_two();
        let buckets_max = word(buckets.clamp(1 << 12, BUCKETS_MAX))?;
        // Their buckets take at most an eighth of the memory. So they never exceed `buckets_max`,
        // and a file has the same length for any number of stripes.
        let stripes_max = word(1 << (limit >> 9).ilog2())?;
        Ok(Self {
            page_bytes: word(page_bytes)?,
            pages_max: word(reserve / page_bytes)?,
            place_bits,
            chunk_bytes_least: word(config.chunk_bytes_least())?,
            invalidation_words: invalidation::words_of(limit),
            // Items have at least 32 bytes. One word each, and three for holes.
            block_words: word((reserve / 8).clamp(1 << 16, BLOCK_WORDS_MAX))?,
            items_max: (reserve / 32).min(REFERENCES_MAX),
            table: TableShape {
                // A 64th of the memory, so that a small store has room for items.
                buckets: word((limit >> 12).next_power_of_two().min(1 << 10))?,
                buckets_max,
                overflow_max: (buckets_max / 4).max(1 << 12),
                stripes: config.stripes.min(stripes_max),
            },
        })
    }

    /// Bytes of all pages: the maximum limit.
    #[cfg_attr(miri, allow(dead_code, reason = "Miri maps no files"))]
    pub(crate) fn bytes_max(&self) -> u64 {
        self.pages_max as u64 * self.page_bytes as u64
    }
}

impl Config {
    /// Bytes of the smallest chunk, unless another setting is greater: with smaller chunks, a page
    /// of a store with so large a limit would have more chunks than references have places. 0 below
    /// 16 GB.
    #[must_use]
    pub fn chunk_bytes_least(&self) -> u64 {
        // One place of each page is unused, so that the last page's last place has a reference.
        let least = |bits| (page_bytes(self.memory_bytes) >> bits) + ALIGNMENT as u64;
        place_bits(self).map_or(0, least)
    }
}

/// Each class in use keeps a page, and some 80 classes may be in use. A small store has small
/// pages, so that most of its memory is left to requested items.
fn page_bytes(limit: u64) -> u64 {
    const SMALL: [(u64, u64); 4] = [
        (8 * MIB, 16 << 10),
        (64 * MIB + 1, 32 << 10),
        (256 * MIB, 64 << 10),
        (1 << 30, 256 << 10),
    ];
    SMALL.iter().find(|&&(below, _)| limit < below).map_or(MIB, |&(_, bytes)| bytes)
}

/// As many bits of a reference as the pages leave for places. `None`: references are offsets.
fn place_bits(config: &Config) -> Option<u32> {
    let limit = config.memory_bytes;
    if !config.by_place && limit / ALIGNMENT as u64 <= REFERENCES_MAX {
        return None;
    }
    let pages = limit.div_ceil(page_bytes(limit)).next_power_of_two();
    Some(REFERENCE_BITS.saturating_sub(pages.trailing_zeros()).min(PLACE_BITS_MAX))
}

const TOO_LARGE: &str = "the memory limit exceeds this machine's address space";

fn check(config: &Config) -> Result<(), StoreError> {
    let rules = [
        (config.memory_bytes >= MIB, "the memory limit must be at least 1 MB"),
        (config.memory_bytes <= 1 << 44, "the memory limit must be at most 16 TB"),
        (config.growth_factor > 1.0, "the growth factor must be over 1"),
        (config.stripes.is_power_of_two(), "the number of stripes must be a power of two"),
        (config.stripes <= 1 << 16, "the number of stripes must be at most 65536"),
        (config.item_bytes_max >= 1024, "the largest item must be at least 1 KB"),
        (config.item_bytes_max <= 1 << 30, "the largest item must be at most 1 GB"),
        (
            config.item_bytes_max <= config.memory_bytes / 2,
            "the largest item must be at most half of the memory limit",
        ),
        ((1..=8192).contains(&config.chunk_bytes_min), "the smallest chunk must be 1..8192 bytes"),
        ((1..=4096).contains(&config.threads_max), "threads must be 1..4096"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, broken)) => Err(StoreError::Config(broken)),
        None => Ok(()),
    }
}
