//! `holdall config`: checks, shows and compares the settings of a server; `holdall migrate`: makes
//! them of another's.
//!
//! ```text
//!     file -> options::file::check -> check
//!     arguments, environment, file -> options::parse -> show
//!                                                    \ -> diff <- `stats settings` of a server
//!     options::settings -> schema
//! ```
#![forbid(unsafe_code)]

mod check;
pub mod cli;
mod diff;
mod migrate;
pub mod migrate_cli;
mod schema;
mod show;

pub use check::{Checked, check};
pub use diff::{Difference, differences};
pub use migrate::{Migrated, migrated};
pub use schema::schema;
pub use show::{Shown, shown};
