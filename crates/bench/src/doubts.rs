//! Doubts about several points of one measurement, which often share them.

/// The doubts of all points, each with its points, such as `At 1, 4 connections:` and the words;
/// `unit` is that of the points and may be empty.
pub(crate) fn by_point(
    unit: &str,
    points: impl IntoIterator<Item = (String, Vec<String>)>,
) -> Vec<String> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (at, doubts) in points {
        for doubt in doubts {
            match all.iter_mut().find(|(known, _)| kind(known) == kind(&doubt)) {
                Some((_, points)) if points.last() == Some(&at) => {}
                Some((_, points)) => points.push(at.clone()),
                None => all.push((doubt, vec![at.clone()])),
            }
        }
    }
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let named =
        |(doubt, points): (String, Vec<String>)| format!("At {}{unit}: {doubt}", points.join(", "));
    all.into_iter().map(named).collect()
}

/// The kind of a doubt. Numbers differ from point to point; the words around them do not.
fn kind(doubt: &str) -> String {
    doubt.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_names_each_of_its_points_once() {
        let of = |at: &str, doubts: &[&str]| {
            (at.to_owned(), doubts.iter().map(|doubt| (*doubt).to_owned()).collect())
        };
        let points = [
            of("1", &["only 5 % were found", "only 7 % were found"]),
            of("2", &["a thread waited 30 % of the time", "9 requests were refused"]),
            of("4", &["only 6.5 % were found", "3 values were wrong"]),
        ];
        let expected = [
            "At 1, 4 connections: only 5 % were found",
            "At 2 connections: a thread waited 30 % of the time",
            "At 2 connections: 9 requests were refused",
            "At 4 connections: 3 values were wrong",
        ];
        assert_eq!(by_point("connections", points.clone()), expected);
        assert_eq!(by_point("", points)[1], "At 2: a thread waited 30 % of the time");
    }
}
