//! The interface between the endpoint and a program.

use crate::health::Check;
use crate::page::Page;

/// The view that a program gives of itself. Nothing here waits: it is called in the threads of the
/// endpoint and of the exporter.
pub trait Pages: Send + Sync + 'static {
    /// The numbers of this moment, which `/metrics` shows.
    fn metrics(&self) -> Page;

    /// The conditions of `/livez`: if one fails, a restart mends it.
    fn live(&self) -> Vec<Check>;

    /// The conditions of `/readyz`: if one fails, clients should go elsewhere for now.
    fn ready(&self) -> Vec<Check>;

    /// The conditions of `/startupz`: if one fails, the start is still under way.
    fn started(&self) -> Vec<Check>;

    /// The answer to a line that is no HTTP, for a program that speaks another protocol at the
    /// same address; lines of HTTP begin with a capital, its own do not. `None` ends the
    /// connection.
    fn line(&self, _line: &str) -> Option<String> {
        None
    }
}
