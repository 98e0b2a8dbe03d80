//! The order of a source's members, which determines the places of keys.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::Member;

/// Sorts members and removes duplicates. Whatever the order of an answer, keys stay in place; and
/// if a server is replaced by one of the same name, the others keep their places.
pub(crate) fn order(members: &mut Vec<Member>) {
    let has_names = members.iter().all(|member| member.name.is_some());
    members.sort_by(|one, other| {
        let by_host = || by_numbers(&one.host, &other.host);
        let by_port = || one.port.cmp(&other.port);
        let by_name = || by_numbers(name_of(one), name_of(other));
        if has_names {
            by_name().then_with(by_port).then_with(by_host)
        } else {
            by_host().then_with(by_port).then_with(by_name)
        }
    });
    let mut seen = BTreeSet::new();
    members.retain(|member| seen.insert(member.server()));
}

fn name_of(member: &Member) -> &str {
    member.name.as_deref().unwrap_or_default()
}

/// Compares as text, but runs of digits as numbers: `cache-10` follows `cache-9`, so that a server
/// that joins with the next number is the last one, and takes no other's place.
fn by_numbers(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (left_number, right_number);
            (left_number, left) = number(left);
            (right_number, right) = number(right);
            // Without leading zeros, the longer one is greater, whatever its length.
            let by_len = left_number.len().cmp(&right_number.len());
            let ordering = by_len.then_with(|| left_number.cmp(right_number));
            if ordering.is_ne() {
                return ordering;
            }
        } else if first == second {
            (left, right) = (left_rest, right_rest);
        } else {
            return first.cmp(second);
        }
    }
    // Names that differ only in leading zeros are not equal.
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// The leading digits without leading zeros, and the rest.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    (digits.split_at(zeros).1, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(lines: &[&str]) -> Vec<String> {
        let mut members: Vec<_> = lines.iter().map(|line| Member::of_line(line).unwrap()).collect();
        order(&mut members);
        members.iter().map(Member::server).collect()
    }

    #[test]
    fn members_are_ordered_by_name_if_all_have_one() {
        assert_eq!(ordered(&["10.0.0.9:1 a", "10.0.0.2:1 b"]), ["10.0.0.9:1", "10.0.0.2:1"]);
        assert_eq!(ordered(&["10.0.0.9:2 a", "10.0.0.9:1 a"]), ["10.0.0.9:1", "10.0.0.9:2"]);
        assert_eq!(ordered(&["10.0.0.9:1 a", "10.0.0.2:1"]), ["10.0.0.2:1", "10.0.0.9:1"]);
        let twice = ["10.0.0.9:1 a", "10.0.0.1:1 b", "10.0.0.9:1 c"];
        assert_eq!(ordered(&twice), ["10.0.0.9:1", "10.0.0.1:1"]);
    }

    /// A StatefulSet's pods, a value of etcd, and addresses.
    #[test]
    fn names_are_ordered_by_number() {
        let pods = ["10.0.0.1:1 m-10.svc", "10.0.0.2:1 m-9.svc", "10.0.0.3:1 m-1.svc"];
        assert_eq!(ordered(&pods), ["10.0.0.3:1", "10.0.0.2:1", "10.0.0.1:1"]);
        assert_eq!(ordered(&["m-10:1", "m-2:1", "m-1:1"]), ["m-1:1", "m-2:1", "m-10:1"]);
        assert_eq!(ordered(&["10.0.0.10:1", "10.0.0.9:1"]), ["10.0.0.9:1", "10.0.0.10:1"]);
    }

    /// Each is less than all that follow.
    #[test]
    fn names_have_a_total_order() {
        let ascending = "01 1 2 10 m m-0 m-00 m-1 m-1a m-01b m-1b m-2 m-9.a10 m-10 m-10.a9 \
                         m-10.a10 m-010.a11 m0 m1 m18446744073709551616 m99999999999999999999 ma";
        let ascending: Vec<_> = ascending.split(' ').collect();
        for (place, one) in ascending.iter().enumerate() {
            for (other_place, other) in ascending.iter().enumerate() {
                let (found, wanted) = (by_numbers(one, other), place.cmp(&other_place));
                assert_eq!(found, wanted, "{one} and {other}");
            }
        }
    }
}
