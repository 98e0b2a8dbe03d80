//! The interface between the endpoint and a program.

use crate::health::Check;
use crate::page::Page;

/// A program's view of itself. Nothing here waits: the threads of the endpoint and of the exporter
/// call it.
pub trait Pages: Send + Sync + 'static {
    /// The numbers of this moment, which `/metrics` shows.
    fn metrics(&self) -> Page;

    /// The conditions of `/livez`: if one fails, a restart fixes it.
    fn live(&self) -> Vec<Check>;

    /// The conditions of `/readyz`: if one fails, clients should go elsewhere for now.
    fn ready(&self) -> Vec<Check>;

    /// The conditions of `/startupz`: if one fails, the start is still in progress.
    fn started(&self) -> Vec<Check>;

    /// The answer to a line that is not HTTP, for a program with another protocol at the same
    /// address; lines of HTTP start with a capital, its own do not. `None` ends the connection.
    fn line(&self, _line: &str) -> Option<String> {
        None
    }
}
