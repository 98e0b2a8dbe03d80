//! Edits of a configuration's text that leave everything else unchanged: comments, order, layout.
//!
//! The scanner knows only strings, comments and brackets. The caller parses the result as a
//! configuration and compares it.

use std::ops::Range;

/// The strings of one list of servers.
#[derive(Debug, Default, Eq, PartialEq)]
struct List {
    /// The keys above it, outermost first.
    path: Vec<String>,
    /// The start of the list's text, after the bracket.
    start: usize,
    /// Its end, before the bracket.
    end: usize,
    /// Its strings with their quotes.
    strings: Vec<Range<usize>>,
}

/// The text without the server in any list of `servers`.
pub(crate) fn without(text: &str, server: &str) -> String {
    let mut cuts: Vec<Range<usize>> = Vec::new();
    for list in lists(text) {
        let strings = &list.strings;
        let is_server = |at: &Range<usize>| {
            let word = text.get(at.start + 1..at.end.saturating_sub(1)).unwrap_or_default();
            let rest = word.strip_prefix(server);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        let stays: Vec<bool> = strings.iter().map(|at| !is_server(at)).collect();
        for (place, at) in strings.iter().enumerate().filter(|(place, _)| !stays[*place]) {
            // The comma is removed with the server: the one before it if a server remains there,
            // otherwise the one after it.
            if stays[..place].contains(&true) {
                cuts.push(strings[place - 1].end..at.end);
            } else {
                cuts.push(at.start..strings.get(place + 1).map_or(list.end, |next| next.start));
            }
        }
    }
    let mut left = text.to_owned();
    for cut in cuts.into_iter().rev() {
        left.replace_range(cut, "");
    }
    left
}

/// The text with the server after the others of a pool; none if it has no list for the pool.
pub(crate) fn with(text: &str, pool: &str, server: &str) -> Option<String> {
    let is_of_pool = |list: &List| list.path == ["pools", pool, "servers"];
    let list = lists(text).into_iter().find(is_of_pool)?;
    let (place, before) = match &list.strings[..] {
        [] => (list.start, String::new()),
        [.., one, other] => (other.end, between(text.get(one.end..other.start)?)),
        [one] => (one.end, ", ".to_owned()),
    };
    let mut more = text.to_owned();
    more.insert_str(place, &format!("{before}\"{server}\""));
    Some(more)
}

/// The comma and the layout between two servers, unless there is a comment.
fn between(text: &str) -> String {
    let is_plain = text.chars().all(|letter| letter == ',' || letter.is_whitespace());
    if is_plain { text.to_owned() } else { ", ".to_owned() }
}

/// The lists of `servers` in a text of JSON with comments, in its order.
fn lists(text: &str) -> Vec<List> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // For each open bracket, the key before it, and a list if it holds servers.
    let mut open: Vec<(String, Option<List>)> = Vec::new();
    let (mut at, mut key, mut word) = (0, String::new(), String::new());
    while at < bytes.len() {
        let end = token(bytes, at);
        match bytes[at] {
            b'"' => {
                word = text.get(at + 1..end - 1).unwrap_or_default().to_owned();
                if let Some((_, Some(list))) = open.last_mut() {
                    list.strings.push(at..end);
                }
            }
            b':' => key = std::mem::take(&mut word),
            b',' => key.clear(),
            b'[' | b'{' => {
                let mut list = None;
                if bytes[at] == b'[' && key == "servers" {
                    let above = open.iter().map(|(key, _)| key).chain([&key]);
                    let path = above.filter(|key| !key.is_empty()).cloned().collect();
                    list = Some(List { path, start: end, ..List::default() });
                }
                open.push((std::mem::take(&mut key), list));
            }
            b']' | b'}' => {
                if let Some((_, Some(list))) = open.pop() {
                    found.push(List { end: at, ..list });
                }
                key.clear();
            }
            _ => {}
        }
        at = end;
    }
    found
}

/// The end of the string or comment that starts here, or of this byte.
fn token(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let behind = |end: Option<usize>, more: usize| end.map_or(bytes.len(), |end| at + end + more);
    if rest.starts_with(b"//") {
        behind(rest.iter().position(|byte| *byte == b'\n'), 1)
    } else if rest.starts_with(b"/*") {
        behind(rest.windows(2).skip(2).position(|pair| pair == b"*/"), 4)
    } else if rest[0] == b'"' {
        let mut is_escaped = false;
        let is_end = |byte: &u8| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        };
        behind(rest[1..].iter().position(is_end), 2)
    } else {
        at + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
  // "servers": ["10.0.0.1:11211"]
  "pools": {
    "A": { "servers": [
      "10.0.0.1:11211", /* the "old" one */
      "10.0.0.2:11211:ascii:plain",
      "10.0.0.3:11211"
    ] },
    "B": { "servers": ["10.0.0.1:112"] },
    "C": { "servers": [ ] }
  },
  "route": "PoolRoute|A"
}"#;

    #[test]
    fn a_server_is_removed_only_from_server_lists() {
        let first = without(TEXT, "10.0.0.1:11211");
        assert_eq!(first, TEXT.replace("\"10.0.0.1:11211\", /* the \"old\" one */\n      ", ""));
        let second = without(TEXT, "10.0.0.2:11211");
        assert_eq!(
            second,
            TEXT.replace(", /* the \"old\" one */\n      \"10.0.0.2:11211:ascii:plain\"", "")
        );
        let last = without(TEXT, "10.0.0.3:11211");
        assert_eq!(last, TEXT.replace(",\n      \"10.0.0.3:11211\"", ""));
        assert_eq!(without(TEXT, "10.0.0.9:11211"), TEXT);
        assert_eq!(without(TEXT, "10.0.0.1:112"), TEXT.replace("[\"10.0.0.1:112\"]", "[]"));
    }

    #[test]
    fn an_added_server_follows_the_layout_of_its_list() {
        let more = with(TEXT, "A", "10.0.0.4:1").unwrap();
        let last = "\"10.0.0.3:11211\"";
        assert_eq!(more, TEXT.replace(last, &format!("{last},\n      \"10.0.0.4:1\"")));
        let second = with(TEXT, "B", "h:1").unwrap();
        assert_eq!(second, TEXT.replace("\"10.0.0.1:112\"", "\"10.0.0.1:112\", \"h:1\""));
        assert!(with(TEXT, "C", "h:1").unwrap().contains("[\"h:1\" ]"));
        assert_eq!(with(TEXT, "D", "h:1"), None);
    }

    #[test]
    fn malformed_json_does_not_hang_the_editor() {
        for text in ["", "\"", "\"\\", "/*", "//", "]}[{", "{\"servers\":[\"", "\"servers\":[\"ä"]
        {
            assert_eq!(without(text, "x"), text);
            assert_eq!(with(text, "A", "x"), None);
        }
        // A text that is cut at any character is scanned to its end.
        for end in (0..TEXT.len()).filter(|end| TEXT.is_char_boundary(*end)) {
            let _ = without(&TEXT[..end], "10.0.0.1:11211");
        }
    }

    #[test]
    fn every_server_of_a_list_can_be_removed() {
        let text = r#"{"servers":["a:1","a:1","b:1","a:1"]}"#;
        assert_eq!(without(text, "a:1"), r#"{"servers":["b:1"]}"#);
        assert_eq!(without(r#"{"servers":["a:1","a:1"]}"#, "a:1"), r#"{"servers":[]}"#);
    }
}
