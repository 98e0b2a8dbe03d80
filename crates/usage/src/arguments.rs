//! Command lines that clap parses.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::EXIT_USAGE;

/// Parses the words behind a command's name.
///
/// # Errors
///
/// The status to end with: 0 when a page was asked for and printed, [`EXIT_USAGE`] when the words
/// are wrong. What is wrong with them was printed to stderr.
pub fn parse<P: Parser>(
    command: &str,
    words: impl IntoIterator<Item = OsString>,
) -> Result<P, ExitCode> {
    let line = std::iter::once(OsString::from(command)).chain(words);
    P::try_parse_from(line).map_err(|error| {
        // Nobody is left to tell when the stream is closed.
        let _ = error.print();
        if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(version)]
    struct Words {
        #[arg(long)]
        json: bool,
    }

    #[test]
    fn pages_end_with_0_and_wrong_words_with_64() {
        let parsed = |words: &[&str]| parse::<Words>("holdall x", words.iter().map(OsString::from));
        assert!(parsed(&["--json"]).unwrap().json);
        assert_eq!(parsed(&["--help"]).unwrap_err(), ExitCode::SUCCESS);
        assert_eq!(parsed(&["--version"]).unwrap_err(), ExitCode::SUCCESS);
        assert_eq!(parsed(&["--jsn"]).unwrap_err(), ExitCode::from(EXIT_USAGE));
        assert_eq!(parsed(&["word"]).unwrap_err(), ExitCode::from(EXIT_USAGE));
    }
}
