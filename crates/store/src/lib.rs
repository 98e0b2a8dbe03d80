//! A concurrent in-memory item store: hash table, slabs, bag LRU, over the memory of `arena`.
//!
//! A [`Store`] holds items by key within one memory limit. It knows items, not commands. Each
//! thread joins it and gets a [`Handle`]. A [`Section`] looks keys up without locks and changes
//! them under striped locks; a [`Draft`] is an item being written. The [`Cleaner`] does the
//! background work in steps. The caller passes times, in seconds since the store's start: the store
//! has no clock.
//!
//! # Layers
//!
//! Each module imports only modules above it in this list, or to its left:
//!
//! ```text
//!     error  table                           errors; hash index
//!     lru  expiry  stats  namespaces         bags of items by age; records of what is to die
//!     config  slabs  file                    settings and sizes; free chunks; the memory file
//!     store                                  the structure that holds all of these
//!     thread  pin  item  linked              one thread's state; items; changes of linked items
//!     eviction  reaping  allocation          passes that free items, and the search for memory
//!     draft  section  handle                 the interface of a thread
//!     cleaner  restart                       background work; opening and closing over a file
//! ```
//!
//! The public interface is wholly safe. ARCHITECTURE.md lists the files with unsafe code.
#![deny(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "a model uses a part of the crate"))]

mod expiry;
mod lru;
mod table;

#[cfg(not(loom))]
mod allocation;
#[cfg(not(loom))]
mod cleaner;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod draft;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod eviction;
#[cfg(not(any(loom, miri)))]
mod file;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod item;
#[cfg(not(loom))]
mod linked;
#[cfg(not(loom))]
mod namespaces;
#[cfg(not(loom))]
mod pin;
#[cfg(not(loom))]
mod reaping;
#[cfg(not(any(loom, miri)))]
mod restart;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod slabs;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod store;
#[cfg(not(loom))]
mod thread;

#[cfg(not(loom))]
pub use {
    arena::version::Version,
    cleaner::{Cleaner, Step},
    config::{Automove, Config, Policy},
    draft::{Draft, DraftError, KEY_BYTES_MAX, NewItem, item_bytes},
    error::{LimitError, StoreError, TooManyPrefixes},
    expiry::transient::TRANSIENT_SECS_MAX,
    handle::{Handle, Observer},
    item::{Item, Liveness},
    lru::tuning::EvictionSetting,
    namespaces::{NAMESPACES_MAX, Namespace, NamespaceStats, Namespaces},
    pin::Pin,
    reaping::walk::WalkCursor,
    section::{Applied, Change, Section},
    slabs::balance_settings::ReassignError,
    stats::{BagStats, ClassStats, IndexStats, MemorySplit, StoreStats},
    store::{
        Store,
        bag_walk::{BagStep, BagWalk},
        requests::CrawlError,
    },
    table::SlotHint,
};
#[cfg(not(any(loom, miri)))]
pub use {
    error::FileError,
    file::{Found, MemoryFile, TimeNote},
    restart::{
        recover::Recovered,
        warm::{CloseError, Opened},
    },
};
