//! The intended differences between this server and Debian's memcached 1.6.18.
//!
//! Each stands twice: here, as a rule that tells which replies it covers, and in docs/protocol.md,
//! where people read it. One that is missing there fails the differential test; and a generated
//! command says which of them its reply may show, so that no rule covers more than it is meant to.

use std::collections::BTreeSet;
use std::path::Path;

/// One intended difference.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// Its name in docs/protocol.md, between backticks at the start of a table row.
    pub id: &'static str,
    /// True if it explains memcached's parts on the left and ours on the right.
    pub explains: fn(&[String], &[String]) -> bool,
}

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";

/// All of them.
pub const ALL: &[Difference] = &[
    Difference { id: "short-line", explains: error_becomes_bad_line },
    Difference { id: "too-few-words", explains: error_becomes_bad_line },
    Difference { id: "leading-space", explains: |_, ours| ours == ["ERROR"] },
    Difference {
        id: "mistake-swallows-data",
        // 1.6.18 goes on to parse the data block as a command.
        explains: |theirs, ours| ours == [BAD_LINE] && theirs == [BAD_LINE, "ERROR"],
    },
    Difference {
        id: "cas-without-its-unique",
        explains: |theirs, ours| ours == [BAD_LINE] && theirs == ["ERROR", "ERROR"],
    },
    Difference {
        id: "counter-created-in-silence",
        explains: |theirs, ours| {
            let made =
                theirs.first().is_some_and(|line| line.starts_with("HD") || line.starts_with("VA"));
            ours.is_empty() && made
        },
    },
    Difference {
        id: "flags-too-large",
        explains: |theirs, ours| ours == [BAD_LINE] && theirs == ["STORED"],
    },
    Difference {
        id: "long-key-in-multiget",
        explains: |theirs, ours| {
            theirs == [BAD_LINE] && ours.last().is_some_and(|last| last == BAD_LINE)
        },
    },
    Difference {
        id: "delta-with-plus",
        explains: |_, ours| ours == ["CLIENT_ERROR invalid numeric delta argument"],
    },
    Difference {
        id: "md-with-a-bad-flag",
        explains: |theirs, ours| {
            theirs == ["CLIENT_ERROR invalid or duplicate flag"]
                && (ours == ["CLIENT_ERROR duplicate flag"]
                    || ours == ["CLIENT_ERROR invalid flag"])
        },
    },
    Difference { id: "key-in-base64", explains: only_the_key_is_encoded },
    Difference {
        id: "delete-with-a-number",
        explains: |theirs, ours| {
            theirs.len() == 1
                && theirs[0].starts_with(BAD_LINE)
                && (ours == ["DELETED"] || ours == ["NOT_FOUND"] || ours == [BAD_LINE])
        },
    },
];

fn error_becomes_bad_line(theirs: &[String], ours: &[String]) -> bool {
    theirs == ["ERROR"] && ours == [BAD_LINE]
}

/// The key in base64, and the `b` that says so, where memcached sends it raw.
fn only_the_key_is_encoded(theirs: &[String], ours: &[String]) -> bool {
    let words = |line: &String, key: bool| {
        let kept = |word: &&str| !word.starts_with('k') && (*word != "b" || key);
        line.split(' ').filter(kept).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    theirs.len() == ours.len()
        && theirs.iter().zip(ours).all(|(a, b)| a == b || words(a, true) == words(b, false))
}

/// The rule of this name.
#[must_use]
pub fn rule(id: &str) -> &'static Difference {
    ALL.iter().find(|rule| rule.id == id).unwrap_or_else(|| panic!("no difference named {id}"))
}

/// The names that docs/protocol.md gives to differences: a name between backticks opens the table's
/// row.
#[must_use]
pub fn documented() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    ids(&text)
}

fn ids(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("| `"))
        .filter_map(|rest| rest.split_once("` |"))
        .map(|(id, _)| id.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_table_rows() {
        let text = "# x\n| id | what |\n| --- | --- |\n| `short-line` | an empty line |\nsee `y`\n";
        assert_eq!(ids(text).into_iter().collect::<Vec<_>>(), ["short-line"]);
    }

    #[test]
    fn no_name_stands_twice() {
        let names: BTreeSet<_> = ALL.iter().map(|rule| rule.id).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
