//! Items, memory and concurrency: arena, hash table, slabs, bags, reclamation. Knows items, not commands.
//!
//! A [`Store`] holds items by key within one memory limit. Each thread joins it as a [`Participant`]; a
//! [`Section`] looks keys up without locks and changes them under striped locks; a [`Draft`] is an item being
//! written. The [`Cleaner`] does the background work in steps. Times are seconds since the store's start, given
//! by the caller: the store has no clock.
//!
//! The public interface is wholly safe. The files with unsafe code are listed in ARCHITECTURE.md.
#![deny(unsafe_code)]
#![cfg_attr(loom, allow(dead_code, reason = "a model uses a part of the crate"))]

mod qsbr;
mod region;
mod sync;
mod table;

#[cfg(not(loom))]
mod arena;
mod bag;
#[cfg(not(loom))]
mod balance;
mod blocks;
mod budget;
#[cfg(not(loom))]
mod cleaner;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod control;
#[cfg(not(loom))]
mod crawl;
#[cfg(not(loom))]
mod deleted;
#[cfg(not(loom))]
mod draft;
#[cfg(not(any(loom, miri)))]
mod file;
mod invalidation;
#[cfg(not(loom))]
mod item;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod pages;
#[cfg(not(loom))]
mod participant;
#[cfg(not(loom))]
mod pass;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod slab;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod store;
#[cfg(not(loom))]
mod transient;
#[cfg(not(loom))]
mod walk;

#[cfg(not(loom))]
pub use {
    balance::{Automove, ReassignError},
    cleaner::{Cleaner, Step},
    config::{Config, Policy, StoreError},
    crawl::CrawlError,
    draft::{Draft, DraftError, KEY_BYTES_MAX, NewItem, item_bytes},
    item::{Item, Liveness, Pin},
    participant::{Observer, Participant},
    section::{Applied, Change, Section},
    stats::{BagStats, ClassStats, IndexStats, MemorySplit, StoreStats},
    store::Store,
    table::Spot,
    transient::TRANSIENT_SECS_MAX,
    walk::WalkCursor,
};
#[cfg(not(any(loom, miri)))]
pub use {
    file::{FileError, Found, MemoryFile, TimeNote},
    store::{CloseError, Opened, Recovered},
};
