//! The flag words of meta commands.

/// The word with this letter.
pub(super) fn find(words: &[u8], letter: u8) -> Option<&[u8]> {
    split(words).find(|word| word.first() == Some(&letter))
}

/// The words without those for which `goes` is true.
pub(super) fn without(words: &[u8], goes: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let left: Vec<&[u8]> = split(words).filter(|word| !goes(word)).collect();
    left.join(&b' ')
}

/// The words of a delete with a cas unique, without it; `None` if it has none. A unique is valid
/// for one item, so only this item's server can check it.
pub(super) fn without_unique(words: &[u8]) -> Option<Vec<u8>> {
    find(words, b'C').map(|_| without(words, |word| word.first() == Some(&b'C')))
}

fn split(words: &[u8]) -> impl Iterator<Item = &[u8]> {
    words.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_letter_and_removed() {
        let words = b"c F7  T90 MS C12";
        assert_eq!(find(words, b'T'), Some(&b"T90"[..]));
        assert_eq!(find(words, b'9'), None);
        assert_eq!(without(words, |word| word[0] == b'C'), b"c F7 T90 MS");
        assert_eq!(without(b"C1", |_| true), b"");
        assert_eq!(without_unique(words).as_deref(), Some(&b"c F7 T90 MS"[..]));
        assert_eq!(without_unique(b"c k"), None);
    }
}
