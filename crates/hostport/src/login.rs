//! The login in a URL, which is never shown.

use std::borrow::Cow;

/// The URL for people: `***` replaces the user and the password before its host.
///
/// Everything up to the last `@` counts as the login. A password with a `/` that is not
/// percent-encoded, which no client accepts, is hidden too, and so is a login without a scheme.
#[must_use]
pub fn without_login(url: &str) -> Cow<'_, str> {
    let Some((before, after)) = url.rsplit_once('@') else { return Cow::Borrowed(url) };
    let scheme = before.find("://").map_or("", |at| &before[..at + "://".len()]);
    Cow::Owned(format!("{scheme}***@{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_of_a_url_is_hidden() {
        for (url, shown) in [
            ("http://c:4318", "http://c:4318"),
            ("http://c:4318/v1/metrics", "http://c:4318/v1/metrics"),
            ("http://user:secret@c:4318", "http://***@c:4318"),
            ("https://user@c/v1", "https://***@c/v1"),
            ("https://:secret@[::1]:4318", "https://***@[::1]:4318"),
            ("http://user:a@b@c", "http://***@c"),
            ("http://user:a/b?c#d@c", "http://***@c"),
            ("user:secret@c:4318", "***@c:4318"),
            ("--otlp=http://user:secret@c", "--otlp=http://***@c"),
            ("", ""),
        ] {
            assert_eq!(without_login(url), shown, "{url}");
        }
    }
}
