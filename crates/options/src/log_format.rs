//! The log's format when the command line, the environment or the file is wrong: a reader of JSON
//! lines must also be able to read the reason.

use std::ffi::OsString;

use logging::Format;

use super::layers::{FILE_BYTES_MAX, FILE_VARIABLE};
use super::{Environment, file};

/// The requested format, as far as it can be found: the first of flag, variable and TOML file that
/// names one.
#[must_use]
pub fn log_format(arguments: &[OsString], environment: &Environment) -> Format {
    let variable = |name: &str| {
        let variable = environment.variables.iter().find(|(known, _)| known == name);
        variable.map(|(_, value)| value.clone())
    };
    let of_file = || {
        let name = config(arguments).or_else(|| variable(FILE_VARIABLE))?;
        let text = files::read_text(&environment.folder.join(name), FILE_BYTES_MAX).ok()?;
        let (entries, _) = file::read(&text);
        entries.into_iter().find(|entry| entry.key == "log_format")?.values.pop()
    };
    let of_text = |text: String| text.parse().ok();
    Format::of_arguments(arguments)
        .or_else(|| variable("LOG_FORMAT").or_else(of_file).and_then(of_text))
        .unwrap_or_default()
}

/// The last file that `--config` names.
fn config(arguments: &[OsString]) -> Option<String> {
    let value = |(at, word): (usize, &OsString)| match word.to_str()?.strip_prefix("--config")? {
        "" => arguments.get(at + 1)?.to_str().map(str::to_owned),
        rest => rest.strip_prefix('=').map(str::to_owned),
    };
    arguments.iter().enumerate().rev().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_format_is_found_despite_other_errors() {
        let of = |words: &[&str], variables: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let variables = variables.iter().map(owned).collect();
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            log_format(&words, &Environment { variables, ..Environment::default() })
        };
        assert_eq!(of(&["--no-such"], &[]), Format::Text);
        assert_eq!(of(&["--no-such", "--log-format=json"], &[]), Format::Json);
        assert_eq!(of(&["--log-format", "json", "-c", "x"], &[]), Format::Json);
        assert_eq!(of(&["--log-format", "json", "--log-format", "text"], &[]), Format::Text);
        assert_eq!(of(&["-c", "x"], &[("LOG_FORMAT", "json")]), Format::Json);
        assert_eq!(of(&["--log-format"], &[]), Format::Text);
    }
}
