//! The view that operators have of a running process: Prometheus's text, health, the HTTP endpoint
//! that carries both, the console beside it, and the conversation with systemd.
//!
//! ```text
//!     scraper, kubelet -> Endpoint -> Pages (of the program) -> Page, Check
//! ```
//!
//! The programs count in atomics of their own and write a page when they are asked, so a request
//! of a client costs nothing for it. Decision 87 says why the text has no library.
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
