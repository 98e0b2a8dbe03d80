//! The page: one text of markup, style, scripts and the chart library, and the policy that lets a
//! browser run these and nothing else.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::digest::{SHA256, digest};

const FRAME: &str = include_str!("page/console.html");
const STYLE: [&str; 2] =
    [include_str!("page/uplot/uPlot.min.css"), include_str!("page/console.css")];
const SCRIPTS: [&str; 8] = [
    include_str!("page/uplot/uPlot.iife.min.js"),
    include_str!("page/format.js"),
    include_str!("page/charts.js"),
    include_str!("page/map.js"),
    include_str!("page/memory.js"),
    include_str!("page/views.js"),
    include_str!("page/actions.js"),
    include_str!("page/console.js"),
];

/// The page and its policy.
#[derive(Debug)]
pub(crate) struct Page {
    /// HTML.
    pub(crate) text: Bytes,
    /// The value of `Content-Security-Policy`.
    pub(crate) policy: String,
}

impl Page {
    /// Puts the page together.
    pub(crate) fn new() -> Self {
        let style = STYLE.concat();
        let mut policy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'; style-src "
            .to_owned();
        policy.push_str(&hash(&style));
        policy.push_str("; script-src");
        let mut scripts = String::new();
        for script in SCRIPTS {
            let _ = write!(policy, " {}", hash(script));
            let _ = writeln!(scripts, "<script>{script}</script>");
        }
        let text = FRAME
            .replace("<!-- style -->", &format!("<style>{style}</style>"))
            .replace("<!-- scripts -->", &scripts);
        Self { text: Bytes::from(text), policy }
    }
}

/// The source expression that allows this text and no other.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_asks_no_other_host() {
        let page = Page::new();
        let text = std::str::from_utf8(&page.text).unwrap();
        assert!(!text.contains("<!-- s"), "a placeholder is left");
        assert_eq!(text.matches("<script>").count(), SCRIPTS.len());
        assert_eq!(page.policy.matches("'sha256-").count(), SCRIPTS.len() + 1);
        let own = [&SCRIPTS[1..], &[FRAME, STYLE[1]]].concat();
        for text in own {
            assert!(!text.contains("http://") && !text.contains("https://"), "an address");
        }
    }

    /// Keys are chosen by others.
    #[test]
    fn no_script_of_ours_makes_markup_of_a_text() {
        for script in &SCRIPTS[1..] {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!script.contains(word), "{word}");
            }
        }
    }

    #[test]
    fn no_script_ends_its_element() {
        for script in SCRIPTS {
            assert!(!script.contains("</script"));
        }
        assert!(!STYLE.concat().contains("</style"));
    }
}
