//! The check of the fuzz target `discovery_answers`.

use crate::{Member, dns, elasticache, etcd};

/// Reads an answer; the first byte chooses the source. A resolver answers queries for a host's
/// address with the bytes after its first answer, whose length is in two bytes.
///
/// # Panics
///
/// If a server is found that a configuration cannot contain.
pub fn check(bytes: &[u8]) {
    let Some((source, answer)) = bytes.split_first() else { return };
    let found = match source % 3 {
        0 => elasticache::read(answer).map(|answer| answer.members),
        1 => str::from_utf8(answer)
            .map_err(std::io::Error::other)
            .and_then(|answer| etcd::members(answer, "")),
        _ => {
            let Some((len, rest)) = answer.split_first_chunk() else { return };
            let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
            let (first, second) = rest.split_at(len);
            dns::members(first, &[], |_, _| Ok(second.to_vec()))
        }
    };
    for member in found.into_iter().flatten() {
        let text = member.line();
        assert!(!text.contains(['"', '\\']) && !text.contains(char::is_control), "{text:?}");
        assert_eq!(Member::of_line(&text), Some(member), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn fuzzing_seeds_pass() {
        let folder = "../../fuzz/seeds/discovery_answers";
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let seeds: Vec<_> = fs::read_dir(folder).unwrap().map(|seed| seed.unwrap()).collect();
        assert!(!seeds.is_empty());
        seeds.iter().for_each(|seed| check(&fs::read(seed.path()).unwrap()));
    }
}
