//! Lines for the operator, on stderr: events of the parts `server`, `commands` and `connections`.

use std::fmt::Arguments;
use std::io;

use logging::Writer;
use net::Peer;
use options::{Options, Style};

/// Writes events to the process's log. While the server serves, a thread of `logging` writes the
/// lines, so that a full pipe stops no worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    name: &'static str,
    verbosity: u8,
}

impl Log {
    /// A log with the verbosity of the options.
    pub(crate) fn new(options: &Options) -> Self {
        let name = match options.style {
            Style::Holdall => "holdall",
            Style::Memcached => "memcached",
        };
        Self { name, verbosity: options.verbosity }
    }

    /// Starts the log of this process.
    pub(crate) fn start(&self, options: &Options) {
        logging::start(self.name, options.log_format, &options.log_filter);
    }

    /// Starts the thread that writes the lines from then on.
    pub(crate) fn start_writer(&self) -> io::Result<Writer> {
        Writer::start(self.name)
    }

    /// Writes a line unless the filter excludes it.
    pub(crate) fn always(&self, line: Arguments<'_>) {
        tracing::info!(target: "server", "{line}");
    }

    /// Writes a warning.
    pub(crate) fn warning(&self, line: Arguments<'_>) {
        tracing::warn!(target: "server", "{line}");
    }

    /// Writes a line for `-v` and more; of level `debug` without.
    pub(crate) fn detail(&self, line: Arguments<'_>) {
        if self.verbosity > 0 {
            tracing::info!(target: "server", "{line}");
        } else {
            tracing::debug!(target: "server", "{line}");
        }
    }

    /// Writes a client's command.
    pub(crate) fn command(&self, line: Arguments<'_>) {
        tracing::info!(target: "commands", "{line}");
    }

    /// Writes a fault of a connection: at most one line per second for each peer.
    pub(crate) fn fault(&self, peer: &Peer, what: Arguments<'_>) {
        logging::fault(peer.remote.map(|remote| remote.ip()), format_args!("{peer}: {what}"));
    }
}
