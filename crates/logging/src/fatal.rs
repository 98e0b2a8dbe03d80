//! The reason why a process ends before it serves, as one line on stderr.

use std::io::Write as _;

use crate::lines::{Format, fatal_json};

/// Writes the reason why a process ends before it serves; in JSON with the place at the start of
/// the message, and the hint. It writes directly, because an ending process has no writer any more.
pub fn fatal(name: &str, format: Format, message: &str, hint: Option<&str>) {
    let line = line(name, format, message, hint);
    // If stderr is closed, there is no reader.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn line(name: &str, format: Format, message: &str, hint: Option<&str>) -> String {
    match (format, hint) {
        (Format::Text, None) => format!("{name}: {message}\n"),
        (Format::Text, Some(hint)) => format!("{name}: {message}; {hint}\n"),
        (Format::Json, _) => fatal_json(name, message, place_of(message), hint),
    }
}

/// The place of a fault: a flag, a file, or a line and column of one. A message with a place starts
/// with it and a colon.
fn place_of(message: &str) -> Option<&str> {
    let (place, _) = message.split_once(": ")?;
    if let Some(address) = place.strip_prefix("cannot listen on ") {
        return Some(address);
    }
    let is_flag = place.starts_with('-');
    let is_file = !place.contains(' ') && place.contains(['/', '.', ':']);
    let is_setting = place.starts_with("HOLDALL_");
    (is_flag || is_file || is_setting).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_the_prefix_of_the_message() {
        for (message, place) in [
            ("-p: 70000 is too large", Some("-p")),
            ("-c (--conn-limit): 'x' is no number", Some("-c (--conn-limit)")),
            ("server.toml:2:16: memory_limit: 2x", Some("server.toml:2:16")),
            ("/etc/holdall/key.pem: Permission denied", Some("/etc/holdall/key.pem")),
            ("cannot listen on tcp 127.0.0.1:11211: it is taken", Some("tcp 127.0.0.1:11211")),
            ("HOLDALL_THREADS: 'x' is no number", Some("HOLDALL_THREADS")),
            ("cannot make the cache: no memory", None),
            ("unknown flag --x", None),
        ] {
            assert_eq!(place_of(message), place, "{message}");
        }
    }

    #[test]
    fn a_fatal_error_is_one_line_in_each_format() {
        let hint = Some("say \"less\"");
        assert_eq!(
            line("holdall", Format::Text, "-p: bad", hint),
            "holdall: -p: bad; say \"less\"\n"
        );
        let json = line("holdall", Format::Json, "-p: bad\nline", hint);
        assert_eq!(json.matches('\n').count(), 1);
        let rest = r#""level":"error","program":"holdall","message":"-p: bad\u000aline","place":"-p","hint":"say \"less\""}"#;
        assert!(json.starts_with("{\"time\":\"") && json.trim_end().ends_with(rest), "{json}");
    }
}
