//! Lines for the operator, on stderr, by verbosity.

use std::fmt::Arguments;
use std::io;

use logging::Writer;
use options::{Options, Style};

/// Writes lines to stderr. While the server serves, a thread of `logging` writes them, so that a
/// full pipe stops no worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    name: &'static str,
    verbosity: u8,
}

impl Log {
    /// A log as verbose as the options ask for.
    pub(crate) fn new(options: &Options) -> Self {
        let name = match options.style {
            Style::Holdall => "holdall",
            Style::Memcached => "memcached",
        };
        Self { name, verbosity: options.verbosity }
    }

    /// Starts the thread that writes the lines from now on.
    pub(crate) fn start_writer(&self) -> io::Result<Writer> {
        Writer::start(self.name)
    }

    /// A line that is always written.
    pub(crate) fn always(&self, line: Arguments<'_>) {
        logging::line(self.name, line);
    }

    /// A warning, always written.
    pub(crate) fn warning(&self, line: Arguments<'_>) {
        self.always(format_args!("warning: {line}"));
    }

    /// A line for `-v` and more.
    pub(crate) fn detail(&self, line: Arguments<'_>) {
        if self.verbosity > 0 {
            self.always(line);
        }
    }
}
