//! Lines for the operator, on stderr, by verbosity.

use std::fmt::Arguments;
use std::io::Write;

use crate::options::{Options, Style};

/// Writes lines to stderr. A line that cannot be written is lost: a log must not stop a cache.
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

    /// A line that is always written.
    pub(crate) fn always(&self, line: Arguments<'_>) {
        let _ = writeln!(std::io::stderr(), "{}: {line}", self.name);
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
