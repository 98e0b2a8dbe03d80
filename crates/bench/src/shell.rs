//! Command lines in shell syntax.

/// Words in shell syntax.
pub(crate) fn shell(words: &[String]) -> String {
    let is_plain = |word: &str| {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+{}".contains(c);
        !word.is_empty() && word.chars().all(safe)
    };
    let quoted = words.iter().map(|word| {
        if is_plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let words = ["a", "--sla", "p99<1ms", "", "it's", "{port}"].map(str::to_owned);
        assert_eq!(shell(&words), r"a --sla 'p99<1ms' '' 'it'\''s' {port}");
    }
}
