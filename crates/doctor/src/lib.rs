//! Checks of a host that runs cache servers: reads `/proc` and `/sys`, returns findings.
//!
//! ```text
//!     Host (a root folder) -> Scene (CPUs, servers, interfaces) -> checks -> findings
//!     Host <- settings <- apply | undo <- findings ------------------------------'
//! ```
//!
//! The checks are those of Intel's *Configuration and Deployment Guide For Memcached*, section 4.5,
//! of *Enhancing the Scalability of Memcached*, section 4.2.3, and of later operators' experience.
//! A missing file ends its check without a finding: containers hide many.
#![forbid(unsafe_code)]

mod change;
mod checks;
pub mod cli;
mod cpus;
mod ethtool;
mod finding;
mod host;
mod layout;
mod report;
mod servers;
mod settings;
mod versions;
mod words;

pub use change::{ChangeError, UNDO_FILE, apply, undo};
pub use finding::{Finding, Level, Setting};
pub use host::Host;
pub use layout::layout;
pub use report::{report, text};
pub use versions::{ask, known};

/// Runs every check. Without `nics`, it checks the interfaces that have a device.
#[must_use]
pub fn examine(host: &Host, nics: &[String]) -> Vec<Finding> {
    checks::all(&checks::Scene::of(host, nics))
}
