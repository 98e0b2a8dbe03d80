//! The flags on memcached's command line.

use hostport::without_login;

/// The words of a command line, without the program's name.
#[derive(Clone, Debug)]
pub(crate) struct Words(pub Vec<String>);

impl Words {
    /// The last value of a flag.
    pub(crate) fn flag(&self, short: char, long: &str) -> Option<&str> {
        self.flags(short, long).pop()
    }

    /// Every value of a flag: `-m 64`, `-m64`, `--memory-limit=64`, `--memory-limit 64`.
    pub(crate) fn flags(&self, short: char, long: &str) -> Vec<&str> {
        let mut words = self.0.iter().map(String::as_str);
        let mut found = Vec::new();
        while let Some(word) = words.next() {
            if let Some(rest) = word.strip_prefix("--") {
                match rest.split_once('=') {
                    Some((name, value)) if name == long => found.push(value),
                    None if rest == long => found.extend(words.next()),
                    _ => {}
                }
            } else if let Some(rest) = word.strip_prefix('-').and_then(|w| w.strip_prefix(short)) {
                if rest.is_empty() {
                    found.extend(words.next());
                } else {
                    found.push(rest);
                }
            }
        }
        // memcached skips the space of `-m 1024` in one word, which lists in YAML contain.
        found.into_iter().map(str::trim_start).collect()
    }

    /// The number after a flag.
    pub(crate) fn number(&self, short: char, long: &str) -> Option<u64> {
        self.flag(short, long)?.parse().ok()
    }

    /// True if a flag without a value is there, separately or among others (`-vSZ`).
    pub(crate) fn has(&self, short: char, long: &str) -> bool {
        self.0.iter().any(|word| match word.strip_prefix("--") {
            Some(name) => name == long,
            None => word.strip_prefix('-').is_some_and(|flags| {
                flags.chars().all(|flag| flag.is_ascii_alphabetic()) && flags.contains(short)
            }),
        })
    }

    /// The value of a word of `-o`, in any of several lists.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        let parts = self.0.iter().flat_map(|word| word.split(','));
        parts
            .rev()
            .find_map(|part| part.trim_start_matches("-o").strip_prefix(name)?.strip_prefix('='))
    }

    /// True if a list of `-o` has a word that has no value.
    pub(crate) fn has_option(&self, name: &str) -> bool {
        self.flags('o', "extended").iter().any(|list| list.split(',').any(|word| word == name))
    }

    /// The command line for a report: the values of words that name keys, users or rights are left
    /// out.
    pub(crate) fn shown(&self) -> Vec<String> {
        let mut is_private = false;
        let mut shown = Vec::new();
        for word in &self.0 {
            shown.push(if is_private { "..".to_owned() } else { without_files(word) });
            is_private = match word.strip_prefix("--") {
                Some(name) => !name.contains('=') && is_secret(name),
                None => word.starts_with('-') && word.ends_with('Y'),
            };
        }
        shown
    }
}

/// A word without the values of options that name keys, users or rights, and without the login of a
/// URL.
pub(crate) fn without_files(word: &str) -> String {
    if word.contains("://") {
        return without_login(word).into_owned();
    }
    let hidden = |part: &str| match part.split_once('=') {
        Some((name, rest)) if name.starts_with("--ext") => {
            format!("{name}={}", without_files(rest))
        }
        Some((name, _)) if is_secret(name) => format!("{name}=.."),
        _ => part.to_owned(),
    };
    if let Some((flags, file)) = word.split_once('Y')
        && let Some(before) = flags.strip_prefix('-')
        && before.chars().all(|flag| flag.is_ascii_alphabetic())
    {
        // After a bare `-Y`, the file is the next word.
        return format!("{flags}Y{}", if file.is_empty() { "" } else { ".." });
    }
    word.split(',').map(hidden).collect::<Vec<_>>().join(",")
}

/// True if an option's or setting's value is the name of such a file.
fn is_secret(name: &str) -> bool {
    ["ssl_", "tls-", "auth", "rights", "users"].iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        Words(line.split(' ').map(str::to_owned).collect()).shown().join(" ")
    }

    #[test]
    fn reports_omit_paths_of_secret_files() {
        for (line, wanted) in [
            ("-Y /etc/users -m 5", "-Y .. -m 5"),
            ("-Y/etc/users -m 5", "-Y.. -m 5"),
            ("-vY /etc/users", "-vY .."),
            ("-vvY/etc/Yusers", "-vvY.."),
            ("--auth-file /etc/users", "--auth-file .."),
            ("--auth-file=/etc/users", "--auth-file=.."),
            ("--auth /etc/users", "--auth .."),
            ("-o ssl_key=/k,track_sizes -m 5", "-o ssl_key=..,track_sizes -m 5"),
            ("-ossl_key=/k", "-ossl_key=.."),
            ("-otrack_sizes,rights=/r -t 4", "-otrack_sizes,rights=.. -t 4"),
            ("--extended=ssl_key=/k,rights=/r", "--extended=ssl_key=..,rights=.."),
            ("--console 127.0.0.1:1,--auth-file=/u", "--console 127.0.0.1:1,--auth-file=.."),
            ("--otlp http://ann:a,b@c:4318", "--otlp http://***@c:4318"),
            ("--otlp=https://ann:pw@c -m 5", "--otlp=https://***@c -m 5"),
        ] {
            assert_eq!(shown(line), wanted, "{line}");
        }
    }
}
