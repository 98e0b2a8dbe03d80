//! The tree of routes that chooses a server for each request, and the worker that runs it.
//!
//! ```text
//!     request -> Core::submit -> Route::pick, or a task that runs Route::route -> Upstream::ask
//!     ticket, reply -> Sink   <-            Split (replies of tasks, of clients) <- Upstream
//! ```
//!
//! One [`Core`] serves one thread at a time. It has no loop: its owner polls [`Core::poller`],
//! calls [`Core::on_events`] and, once per turn, [`Core::settle`]. The requests of one turn leave
//! in one write for each server.
//!
//! [`Plan`] makes trees from a configuration, and [`route`] holds the routes. A [`Spooler`] keeps
//! failed deletes and repeats them.
#![forbid(unsafe_code)]

mod asides;
mod context;
mod core;
mod deletes;
mod join;
mod own_reply;
mod plan;
pub mod route;
#[cfg(test)]
mod simulation;
mod task;
mod timer;

pub use asides::AsideBudget;
pub use context::{Asking, Context, Sleep};
pub use core::{Core, Submitted, Tree};
pub use deletes::{DeleteCounts, Deletes, Spooler, Target};
pub use plan::{BigValues, Distances, Plan, TreeFlags, VariableError};
pub use routeconf::host_id;
