//! Turns the changes of a database's log into the keys that they make stale.
//!
//! ```text
//!     bytes  -> pgoutput::Decoder     -> Event     PostgreSQL's messages
//!               (other decoders)      -> Event     what other logs say, by the same types
//!     Event  -> Keyer (Rules)         -> keys      templates, comments, messages, an outbox
//!            -> Assembler             -> Output    the keys of committed transactions, and where
//!                                                  a restart goes on
//! ```
//!
//! Events are in [`change`]; they name places of a log by [`position`] and [`gtid`]. Rules are in
//! [`keys`], and their parts in [`template`], [`comment`] and [`canary_rule`]. This crate has no
//! connections and no clock. Its only outside resource is the file of [`key_file`], to which
//! [`assemble`] moves the keys of a large transaction.
#![forbid(unsafe_code)]

pub mod assemble;
pub mod canary_rule;
pub mod change;
pub mod comment;
pub mod gtid;
pub mod key_file;
pub mod keys;
pub mod pgoutput;
pub mod position;
pub mod sql;
pub mod template;
