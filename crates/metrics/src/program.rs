//! The interface between the endpoint and a program.

use crate::health::Check;

/// The view that a program gives of itself. Nothing here waits: it is called in the endpoint's one
/// thread.
pub trait Pages: Send + Sync + 'static {
    /// `/metrics`, in Prometheus's text format.
    fn metrics(&self) -> String;

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
