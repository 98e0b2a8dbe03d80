//! "Did you mean": the known name nearest to an unknown one.

use std::cmp::Reverse;

/// Names longer than this are compared no further.
const NAME_CHARS_MAX: usize = 64;

/// The known name that differs least, if it differs by at most a third of its characters.
pub(crate) fn near<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let same = |known: &str| name.chars().zip(known.chars()).take_while(|(a, b)| a == b).count();
    let best = known.min_by_key(|known| (distance(name, known), Reverse(same(known)), *known))?;
    let far = name.chars().count().max(3) / 3;
    (distance(name, best) <= far).then_some(best)
}

/// The number of characters to put in, take out, change, or swap with their neighbour; upper and
/// lower case are alike.
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
    fn near_names_are_found_and_far_ones_are_not() {
        let known = ["PoolRoute", "HashRoute", "AllSyncRoute"];
        for (name, found) in [
            ("PolRoute", Some("PoolRoute")),
            ("poolroute", Some("PoolRoute")),
            ("AllSynchRuote", Some("AllSyncRoute")),
            ("Quorum", None),
            ("", None),
        ] {
            assert_eq!(near(name, known.into_iter()), found, "{name}");
        }
    }
}
