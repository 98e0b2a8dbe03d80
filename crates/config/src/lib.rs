//! `holdall config`: checks, shows and compares the settings of a server.
//!
//! ```text
//!     file -> options::file::resolve -> check <- server::run::findings
//!     arguments, environment, file -> options::parse -> show
//!                                                    \ -> diff <- `stats settings` of a server
//!     options::settings -> schema
//! ```
#![forbid(unsafe_code)]

mod check;
pub mod cli;
mod diff;
mod schema;
mod show;

pub use check::{Checked, check};
pub use diff::{Difference, differences};
pub use schema::schema;
pub use show::{Shown, shown};
