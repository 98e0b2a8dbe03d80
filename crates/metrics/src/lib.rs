//! The operators' view of a running process: Prometheus's text, health, the HTTP endpoint for both,
//! the console next to it, and the communication with systemd.
//!
//! ```text
//!     scraper, kubelet -> Endpoint -> Pages (of the program) -> Page, Check
//! ```
//!
//! The programs count in their own atomics and write a page on request, so it costs clients'
//! requests nothing. Decision 87 gives the reason why the text has no library.
#![forbid(unsafe_code)]

mod console;
mod end;
mod endpoint;
mod family;
mod health;
mod held;
mod listeners;
mod page;
mod process;
mod program;
mod protobuf;
mod reloads;
mod request;
pub mod supervisor;
mod text;

pub use console::{Console, RunningConsole, reachable};
pub use end::{End, Ending};
pub use endpoint::{CONNECTIONS_MAX, Endpoint, serve};
pub use family::{Family, Kind, Point, Value};
pub use health::{Check, Health, Turns};
pub use listeners::listeners;
pub use page::Page;
pub use process::{COMMIT, VERSION, process};
pub use program::Pages;
pub use reloads::{LastReload, reloads};
