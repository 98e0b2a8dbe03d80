//! The number and size of cache servers for a load: the arithmetic of Intel's *Configuration and
//! Deployment Guide For Memcached*, with measurements for the values that the guide leaves open.
//!
//! ```text
//!     load.toml -> Input -> demand, bytes of an item, curve -> a Candidate for each platform
//!                                                               \ text, JSON, page, topology
//! ```
//!
//! | file | section of the guide |
//! | --- | --- |
//! | `tier.rs` | 4.3.2 (X * M * N) |
//! | `candidate.rs` | 4.4 (memory, interfaces) |
//! | `hits.rs` | 4.3.1 (hit ratio by memory) |
//! | `loss.rs` | 5 and 6 (what is lost with one server) |
//! | `input/scenario.rs` | 6 (the three scenarios) |
//! | `input/platform.rs` | 5 and appendix B (platforms, performance per watt) |
#![forbid(unsafe_code)]

mod candidate;
mod hits;
mod input;
mod items;
mod loss;
mod money;
mod report;
mod sizing;
mod tier;
mod units;
mod wire;

pub use candidate::{Candidate, Constraint, Used};
pub use hits::{Curve, PowerLaw};
pub use input::{EXAMPLE, Input, InputError, Limits, Platform, Scenario};
pub use loss::Loss;
pub use money::{Cheapest, Money};
pub use report::{html, text, topology};
pub use sizing::{Rule, Sizing, size};
pub use tier::{Demand, HitSummary, Items};
pub use units::{BitsPerSecond, Bytes};
