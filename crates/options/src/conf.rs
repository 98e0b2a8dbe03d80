//! `/etc/memcached.conf` in the format of Debian's package: flags as on the command line, `#`
//! comments.
//!
//! memcached itself reads no file. Debian's wrapper turns this one into arguments, without
//! directives that are not flags (`logfile`). Source: `systemd-memcached-wrapper` of Debian's
//! memcached package.

/// One nonempty line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Counted from 1.
    pub number: usize,
    /// The content of the line.
    pub content: Content,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Arguments, without quotes.
    Arguments(Vec<String>),
    /// A word that is not a flag, such as `logfile`: it has no effect.
    Directive(String),
}

/// Reads the text of a file.
///
/// # Errors
///
/// The number of a line with an open quote, and a sentence for the operator.
pub(crate) fn lines(text: &str) -> Result<Vec<Line>, (usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = words(line).map_err(|reason| (number, reason))?;
        match words.first() {
            None => {}
            Some(first) if !first.starts_with('-') => {
                found.push(Line { number, content: Content::Directive(words.swap_remove(0)) });
            }
            Some(_) => found.push(Line { number, content: Content::Arguments(words) }),
        }
    }
    Ok(found)
}

/// Splits a line at white space. Quotes of either kind keep it together, a backslash keeps the next
/// character, and a `#` outside quotes starts a comment.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        match (next, quote) {
            (_, Some(open)) if next == open => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(rest.next()),
            (_, Some(_)) => word.get_or_insert_default().push(next),
            ('#', None) => break,
            ('"' | '\'', None) => {
                word.get_or_insert_default();
                quote = Some(next);
            }
            (_, None) if next.is_whitespace() => words.extend(word.take()),
            (_, None) => word.get_or_insert_default().push(next),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_like_in_a_shell() {
        let split = |line| words(line).unwrap();
        assert_eq!(split("-m 64"), ["-m", "64"]);
        assert_eq!(split("  -m\t64  # comment"), ["-m", "64"]);
        assert_eq!(split("# -m 64"), [""; 0]);
        assert_eq!(split(r#"-o "a,b" -s 'my socket'"#), ["-o", "a,b", "-s", "my socket"]);
        assert_eq!(split(r"-s /a\#b\ c"), ["-s", "/a#b c"]);
        assert_eq!(split("-u ''"), ["-u", ""]);
        assert!(words("-s 'open").is_err());
    }

    #[test]
    fn directives_are_distinguished_from_flags() {
        let found = lines("-d\nlogfile /var/log/memcached.log\n\n-m 64\n").unwrap();
        let arguments = |number, words: &[&str]| Line {
            number,
            content: Content::Arguments(words.iter().map(|word| (*word).to_owned()).collect()),
        };
        let directive = Line { number: 2, content: Content::Directive("logfile".to_owned()) };
        assert_eq!(found, [arguments(1, &["-d"]), directive, arguments(4, &["-m", "64"])]);
    }

    #[test]
    fn an_open_quote_is_reported_with_its_line() {
        assert_eq!(lines("-m 64\n-s \"x").unwrap_err().0, 2);
    }
}
