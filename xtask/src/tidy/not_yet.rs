//! Exemptions: the parts of the tree that a rule does not cover yet.
//!
//! The breaches of an exempt part are counted and printed. Remove a part from its list when its
//! count is 0.

/// A rule with a list of exemptions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// The prefixes of the paths of exempt files.
    not_yet: &'static [&'static str],
}

pub(super) const WORDS: Rule = Rule { name: "banned words", not_yet: &[] };

pub(super) const COLUMNS: Rule = Rule { name: "wide comments and prose", not_yet: &[] };

pub(super) const QUESTIONS: Rule = Rule { name: "comments that ask", not_yet: &[] };

pub(super) const CYCLES: Rule = Rule { name: "module cycles", not_yet: &[] };

pub(super) const ORDERINGS: Rule = Rule { name: "orderings", not_yet: &[] };

pub(super) const TYPES: Rule = Rule { name: "large types", not_yet: &[] };

/// The breaches of files that are not exempt, and a note on the others. A breach starts with the
/// path of its file. No path that starts with one of `strict` is exempt.
pub(super) fn sift(
    rule: Rule,
    mut breaches: Vec<String>,
    strict: &[String],
) -> (Vec<String>, Option<String>) {
    let mut counts = vec![0_usize; rule.not_yet.len()];
    breaches.retain(|breach| {
        if strict.iter().any(|path| breach.starts_with(path)) {
            return true;
        }
        let part = rule.not_yet.iter().position(|part| breach.starts_with(part));
        part.map(|part| counts[part] += 1).is_none()
    });
    let of_part = |(part, count): (&&str, &usize)| {
        let clean = if *count == 0 { " (take it from the list)" } else { "" };
        format!("{part} {count}{clean}")
    };
    let parts: Vec<String> = rule.not_yet.iter().zip(&counts).map(of_part).collect();
    let total: usize = counts.iter().sum();
    let note = format!("not yet, {}: {total}: {}", rule.name, parts.join(", "));
    (breaches, (!parts.is_empty()).then_some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exempt_breaches_are_counted_and_others_stay() {
        let rule = Rule { name: "words", not_yet: &["crates/a/", "crates/b/src/c.rs"] };
        let breaches = ["crates/a/src/x.rs:1: w", "crates/a/y.rs:2: w", "crates/b/src/d.rs:3: w"];
        let (left, note) = sift(rule, breaches.map(str::to_owned).to_vec(), &[]);
        assert_eq!(left, ["crates/b/src/d.rs:3: w"]);
        let note = note.unwrap();
        assert_eq!(
            note,
            "not yet, words: 2: crates/a/ 2, crates/b/src/c.rs 0 (take it from the list)"
        );
    }

    #[test]
    fn nothing_below_a_strict_path_is_exempt() {
        let rule = Rule { name: "words", not_yet: &["crates/a/"] };
        let breach = vec!["crates/a/src/x.rs:1: w".to_owned()];
        let (left, note) = sift(rule, breach.clone(), &["crates/a/src".to_owned()]);
        assert_eq!(left, breach);
        assert!(note.unwrap().starts_with("not yet, words: 0: "));
    }

    #[test]
    fn an_empty_list_prints_nothing() {
        let rule = Rule { name: "words", not_yet: &[] };
        assert_eq!(sift(rule, vec!["a".to_owned()], &[]), (vec!["a".to_owned()], None));
    }
}
