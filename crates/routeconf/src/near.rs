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

/// How many characters must be put in, taken out, changed or swapped with their neighbour; upper
/// and lower case are alike.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<_> = a.chars().map(|c| c.to_ascii_lowercase()).take(NAME_CHARS_MAX).collect();
    let b: Vec<_> = b.chars().map(|c| c.to_ascii_lowercase()).take(NAME_CHARS_MAX).collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(left != right)).min(rows[i][j + 1] + 1);
            best = best.min(row[j] + 1);
            if i > 0 && j > 0 && *left == b[j - 1] && a[i - 1] == *right {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or_default()
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
