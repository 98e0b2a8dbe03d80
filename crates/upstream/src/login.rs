//! Name and password for servers that require a login.

use std::fmt;

/// A user's name and password.
#[derive(Clone, Eq, PartialEq)]
pub struct Login {
    user: String,
    password: String,
}

impl Login {
    /// Creates a login. The server compares both byte by byte.
    #[must_use]
    pub fn new(user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned() }
    }

    /// The first `user:password` of a file in the format of servers' `-Y`; empty lines and those
    /// that start with `#` are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // A byte order mark, which some editors write.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let line = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'))?;
        let (user, password) = line.split_once(':')?;
        Some(Self::new(user, password))
    }

    /// User and password.
    pub(crate) fn parts(&self) -> (&str, &str) {
        (&self.user, &self.password)
    }

    /// The command of memcached's `-Y`: a set whose data contains name and password.
    pub(crate) fn command(&self) -> Vec<u8> {
        let data = format!("{} {}", self.user, self.password);
        format!("set login 0 0 {}\r\n{data}\r\n", data.len()).into_bytes()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_in_the_first_line_of_a_users_file() {
        assert_eq!(Login::parse("# x\n\napp:a:b\nother:c\n"), Some(Login::new("app", "a:b")));
        assert_eq!(Login::parse("\u{feff}app:a\r\n"), Some(Login::new("app", "a")));
        assert_eq!(Login::parse("\u{feff}# x\napp:a\n"), Some(Login::new("app", "a")));
        assert_eq!(Login::parse("app\n"), None);
        assert_eq!(Login::parse("\n"), None);
    }
}
