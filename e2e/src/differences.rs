//! The intended differences between this server and memcached: Debian's 1.6.18, and 1.6.45.
//!
//! Each difference appears twice: here, as a rule that selects the replies it covers, and in
//! docs/protocol.md, for readers. The differential test fails if one is missing there, or if that
//! page disagrees about 1.6.45. Each generated command lists the differences that its reply may
//! show, so that no rule covers more than intended.

use std::collections::BTreeMap;
use std::path::Path;

/// One intended difference.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    /// Its name in docs/protocol.md, in backticks at the start of a table row.
    pub id: &'static str,
    /// True if 1.6.45 also differs from holdall.
    pub in_current: bool,
    /// True if it explains the difference of memcached's parts (left) and ours (right).
    pub explains: fn(&[String], &[String]) -> bool,
}

/// The memcached to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Debian's 1.6.18, or another before the current ones.
    Old,
    /// 1.6.45, whose meta, text and binary protocols holdall implements, or a later release.
    Current,
}

impl Release {
    /// The release whose reply to `version` is this line.
    ///
    /// # Panics
    ///
    /// When the line contains no release of 1.6.
    #[must_use]
    pub fn of(line: &str) -> Self {
        let patch = line.strip_prefix("VERSION 1.6.").and_then(|patch| patch.parse::<u32>().ok());
        if patch.unwrap_or_else(|| panic!("{line:?} is no release of memcached 1.6")) >= 45 {
            Self::Current
        } else {
            Self::Old
        }
    }

    /// The first of the differences named `may_differ` that explains these replies.
    #[must_use]
    pub fn explain(
        self,
        may_differ: &[&'static str],
        theirs: &[String],
        ours: &[String],
    ) -> Option<&'static str> {
        may_differ.iter().copied().find(|id| {
            let rule = rule(id);
            (self == Self::Old || rule.in_current) && (rule.explains)(theirs, ours)
        })
    }
}

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";

/// All of them.
pub const ALL: &[Difference] = &[
    Difference { id: "short-line", in_current: false, explains: error_becomes_bad_line },
    Difference { id: "too-few-words", in_current: false, explains: error_becomes_bad_line },
    Difference { id: "leading-space", in_current: false, explains: |_, ours| ours == ["ERROR"] },
    Difference {
        id: "mistake-swallows-data",
        in_current: false,
        // 1.6.18 parses the data block as the next command.
        explains: |theirs, ours| {
            // With `noreply` the mistake has no reply, but the data block has.
            let Some((last, before)) = theirs.split_last() else {
                return false;
            };
            last == "ERROR" && before == ours && ours.len() <= 1
        },
    },
    Difference {
        id: "cas-without-its-unique",
        in_current: false,
        explains: |theirs, ours| ours == [BAD_LINE] && theirs == ["ERROR", "ERROR"],
    },
    Difference {
        id: "counter-created-in-silence",
        in_current: false,
        explains: |theirs, ours| {
            let made =
                theirs.first().is_some_and(|line| line.starts_with("HD") || line.starts_with("VA"));
            ours.is_empty() && made
        },
    },
    Difference {
        id: "flags-too-large",
        in_current: true,
        explains: |theirs, ours| ours == [BAD_LINE] && theirs == ["STORED"],
    },
    Difference {
        id: "long-key-in-multiget",
        in_current: true,
        // 1.6.45 adds an empty line.
        explains: |theirs, ours| {
            (theirs == [BAD_LINE] || theirs == [BAD_LINE, ""])
                && ours.last().is_some_and(|last| last == BAD_LINE)
        },
    },
    Difference { id: "append-too-large", in_current: true, explains: not_stored_becomes_too_large },
    Difference {
        id: "minus-alone",
        in_current: true,
        explains: |_, ours| {
            let refused = |line: &String| line.starts_with("CLIENT_ERROR ");
            ours.len() == 1 && ours.iter().all(refused)
        },
    },
    Difference {
        id: "bad-length-in-silence",
        in_current: false,
        explains: |theirs, ours| theirs.is_empty() && ours == [BAD_LINE],
    },
    Difference {
        id: "mode-of-no-letter",
        in_current: false,
        explains: |theirs, ours| {
            theirs.first().is_some_and(|line| line == "CLIENT_ERROR incorrect length for M token")
                && ours == ["CLIENT_ERROR invalid mode for ms M token"]
        },
    },
    Difference {
        id: "too-many-words",
        in_current: false,
        explains: |theirs, ours| theirs == ["ERROR", "ERROR"] && ours.is_empty(),
    },
    Difference {
        id: "delta-with-plus",
        in_current: true,
        explains: |_, ours| ours == ["CLIENT_ERROR invalid numeric delta argument"],
    },
    Difference {
        id: "md-with-a-bad-flag",
        in_current: false,
        explains: |theirs, ours| {
            theirs == ["CLIENT_ERROR invalid or duplicate flag"]
                && (ours == ["CLIENT_ERROR duplicate flag"]
                    || ours == ["CLIENT_ERROR invalid flag"])
        },
    },
    Difference { id: "key-in-base64", in_current: true, explains: only_the_key_is_encoded },
    // 1.6.18 adds a hint when it refuses numbers and words, 1.6.45 does not.
    Difference {
        id: "delete-with-a-number",
        in_current: false,
        explains: |theirs, ours| {
            theirs.len() == 1 && theirs[0].starts_with(BAD_LINE) && ours == ["NOT_FOUND"]
        },
    },
    Difference {
        id: "delete-with-a-word",
        in_current: true,
        explains: |theirs, ours| {
            let refused = theirs.len() == 1 && theirs[0].starts_with(BAD_LINE);
            (refused || theirs == ["NOT_FOUND"]) && ours == [BAD_LINE]
        },
    },
];

/// Our replies are memcached's, except where `differs` is true for the two.
fn but_where(theirs: &[String], ours: &[String], differs: impl Fn(&str, &str) -> bool) -> bool {
    let mut both = theirs.iter().zip(ours);
    theirs.len() == ours.len() && both.all(|(a, b)| a == b || differs(a, b))
}

fn error_becomes_bad_line(theirs: &[String], ours: &[String]) -> bool {
    but_where(theirs, ours, |theirs, ours| theirs == "ERROR" && ours == BAD_LINE)
}

/// The value of an append that does not fit, in text or as a packet.
fn not_stored_becomes_too_large(theirs: &[String], ours: &[String]) -> bool {
    but_where(theirs, ours, |theirs, ours| {
        theirs == "NOT_STORED" && ours == "SERVER_ERROR object too large for cache"
            || theirs.ends_with("Not stored.") && ours.ends_with("Too large.")
    })
}

/// The key in base64, and the `b` that marks it, where memcached sends the raw key.
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

/// The names of the differences in docs/protocol.md, and whether 1.6.45 also shows them. A table
/// row starts with a name in backticks, and its last cell is `yes` or `no`.
#[must_use]
pub fn documented() -> BTreeMap<String, bool> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    ids(&text)
}

fn ids(text: &str) -> BTreeMap<String, bool> {
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.strip_suffix(" |")?.split_once("` |"));
    cells
        .filter_map(|(id, rest)| {
            let last = rest.rsplit("| ").next()?;
            let same = last.starts_with("yes");
            (same || last.starts_with("no")).then(|| (id.to_owned(), !same))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_read_from_table_rows() {
        let text = "# x\n| id | what | as 1.6.45 |\n| --- | --- | --- |\n\
            | `short-line` | an empty line | yes |\n| `plus` | `+1` | no; see x |\nsee `y`\n";
        let want = [("plus".to_owned(), true), ("short-line".to_owned(), false)];
        assert_eq!(ids(text).into_iter().collect::<Vec<_>>(), want);
    }

    #[test]
    fn releases_are_distinguished() {
        assert_eq!(Release::of("VERSION 1.6.18"), Release::Old);
        assert_eq!(Release::of("VERSION 1.6.45"), Release::Current);
        assert_eq!(Release::of("VERSION 1.6.46"), Release::Current);
    }

    #[test]
    fn rule_names_are_unique() {
        let names: BTreeSet<_> = ALL.iter().map(|rule| rule.id).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
