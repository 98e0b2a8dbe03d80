//! Command lines that clap parses.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error, Parser};

use crate::{EXIT_USAGE, nearest};

/// Parses the words after a command's name.
///
/// # Errors
///
/// Returns the status to end with: 0 when a requested page was printed, [`EXIT_USAGE`] when the
/// words are wrong. The fault was printed to stderr.
pub fn parse<P: Parser>(
    command: &str,
    words: impl IntoIterator<Item = OsString>,
) -> Result<P, ExitCode> {
    let line: Vec<OsString> = std::iter::once(OsString::from(command)).chain(words).collect();
    P::try_parse_from(&line).map_err(|error| {
        let error = with_hint(error, line.get(1), P::command());
        // If the stream is closed, there is no reader.
        let _ = error.print();
        if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
    })
}

/// Names the subcommand that was perhaps meant. clap itself ignores short names, and a word that
/// could have been a file.
fn with_hint(mut error: Error, first: Option<&OsString>, mut command: Command) -> Error {
    let Some(word) = first.and_then(|word| word.to_str()).filter(|_| error.use_stderr()) else {
        return error;
    };
    let names = || command.get_subcommands().map(Command::get_name);
    if names().any(|name| name == word) || Path::new(word).exists() {
        return error;
    }
    let Some(near) = nearest(word, names()) else {
        return error;
    };
    let near = ContextValue::Strings(vec![near.to_owned()]);
    if error.kind() != ErrorKind::InvalidSubcommand {
        error = Error::new(ErrorKind::InvalidSubcommand).with_cmd(&command);
        error.insert(ContextKind::InvalidSubcommand, ContextValue::String(word.to_owned()));
        error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    }
    error.insert(ContextKind::SuggestedSubcommand, near);
    error
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
    fn help_exits_with_0_and_usage_errors_with_64() {
        let parsed = |words: &[&str]| parse::<Words>("holdall x", words.iter().map(OsString::from));
        assert!(parsed(&["--json"]).unwrap().json);
        assert_eq!(parsed(&["--help"]).unwrap_err(), ExitCode::SUCCESS);
        assert_eq!(parsed(&["--version"]).unwrap_err(), ExitCode::SUCCESS);
        assert_eq!(parsed(&["--jsn"]).unwrap_err(), ExitCode::from(EXIT_USAGE));
        assert_eq!(parsed(&["word"]).unwrap_err(), ExitCode::from(EXIT_USAGE));
    }
}
