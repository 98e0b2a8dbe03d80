//! The known name nearest to an unknown one.

use std::cmp::Reverse;

/// The maximum number of compared characters of a name. A name may come from a file, and comparing
/// two takes time in the product of their lengths.
const NAME_CHARS_MAX: usize = 64;

/// The known name that differs least from `name`, if it differs by at most a third of the
/// characters of `name`, or by one.
///
/// A difference is a character to insert, to delete, to change, or to swap with its neighbour;
/// upper and lower case are alike. Of names that differ equally, the one with the longer common
/// start counts.
#[must_use]
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let same = |known: &str| name.chars().zip(known.chars()).take_while(|(a, b)| a == b).count();
    let rank = |known: &&'n str| (distance(name, known), Reverse(same(known)), *known);
    let best = known.into_iter().min_by_key(rank)?;
    let far = name.chars().take(NAME_CHARS_MAX).count().max(3) / 3;
    (distance(name, best) <= far).then_some(best)
}

/// The question whether the [`nearest`] known name was meant.
#[must_use]
pub fn hint<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<String> {
    nearest(name, known).map(|near| format!("did you mean {near}?"))
}

fn distance(a: &str, b: &str) -> usize {
    let plain = |name: &str| -> String {
        name.chars().take(NAME_CHARS_MAX).map(|c| c.to_ascii_lowercase()).collect()
    };
    strsim::osa_distance(&plain(a), &plain(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["PoolRoute", "HashRoute", "AllSyncRoute", "serve", "server", "cp"];
        for (name, found) in [
            ("PolRoute", Some("PoolRoute")),
            ("poolroute", Some("PoolRoute")),
            ("AllSynchRuote", Some("AllSyncRoute")),
            ("serv", Some("serve")),
            ("cpp", Some("cp")),
            ("Quorum", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), found, "{name}");
        }
        assert_eq!(nearest("any", []), None);
    }

    #[test]
    fn overlong_names_are_compared_in_bounded_time() {
        let long = "x".repeat(1 << 20);
        assert_eq!(nearest(&long, ["serve"]), None);
    }

    #[test]
    fn the_hint_suggests_the_nearest_name() {
        assert_eq!(hint("--jsn", ["--json"]).as_deref(), Some("did you mean --json?"));
        assert_eq!(hint("--colour", ["--json"]), None);
    }
}
