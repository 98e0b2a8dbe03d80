//! The page: one text of markup, style, scripts, the chart library and the initial state, and the
//! policy that lets a browser run only these scripts.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::digest::{SHA256, digest};

const FRAME: &str = include_str!("page/console.html");
const STYLE: [&str; 2] =
    [include_str!("page/uplot/uPlot.min.css"), include_str!("page/console.css")];
/// The chart library, which a script of ours runs on demand.
const LIBRARY: &str = include_str!("page/uplot/uPlot.iife.min.js");
const SCRIPTS: [&str; 7] = [
    include_str!("page/format.js"),
    include_str!("page/charts.js"),
    include_str!("page/map.js"),
    include_str!("page/memory.js"),
    include_str!("page/views.js"),
    include_str!("page/actions.js"),
    include_str!("page/console.js"),
];

/// The place of the state in the page.
const STATE: &str = "<!-- state -->";

/// The page and its policy.
#[derive(Debug)]
pub(crate) struct Page {
    /// HTML before the state.
    before: String,
    /// HTML after the state.
    after: String,
    /// The value of `Content-Security-Policy`.
    pub(crate) policy: String,
}

impl Page {
    /// Assembles the page.
    pub(crate) fn new() -> Self {
        let style = STYLE.concat();
        let mut policy = "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'; style-src "
            .to_owned();
        policy.push_str(&hash(&style));
        let _ = write!(policy, "; script-src {}", hash(LIBRARY));
        let mut scripts =
            format!("<script type=\"text/plain\" id=\"library\">{LIBRARY}</script>\n");
        for script in SCRIPTS {
            let _ = write!(policy, " {}", hash(script));
            let _ = writeln!(scripts, "<script>{script}</script>");
        }
        let text = FRAME
            .replace("<!-- style -->", &format!("<style>{style}</style>"))
            .replace("<!-- scripts -->", &scripts);
        let (before, after) = text.split_once(STATE).unwrap_or((&text, ""));
        Self { before: before.to_owned(), after: after.to_owned(), policy }
    }

    /// HTML with this initial state, a text of JSON: it draws without another request.
    pub(crate) fn text(&self, state: &str) -> Bytes {
        // In JSON, `<` occurs only in strings; escaped, nothing there ends the element.
        let state = state.replace('<', "\\u003c");
        let element = format!("<script type=\"application/json\" id=\"state\">{state}</script>");
        Bytes::from([&*self.before, &element, &self.after].concat())
    }
}

/// The source expression that allows only this text.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_complete_and_loads_nothing_from_other_hosts() {
        let page = Page::new();
        let text = page.text("{}");
        let text = std::str::from_utf8(&text).unwrap();
        assert!(!text.contains("<!-- s"), "a placeholder is left");
        assert!(text.contains(r#"id="state">{}</script>"#) && text.ends_with("</html>\n"));
        assert_eq!(text.matches("<script>").count(), SCRIPTS.len());
        assert_eq!(page.policy.matches("'sha256-").count(), SCRIPTS.len() + 2);
        let own = [&SCRIPTS[..], &[FRAME, STYLE[1]]].concat();
        for text in own {
            assert!(!text.contains("http://") && !text.contains("https://"), "an address");
        }
    }

    /// Keys come from others.
    #[test]
    fn scripts_never_insert_text_as_markup() {
        for script in SCRIPTS {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!script.contains(word), "{word}");
            }
        }
    }

    #[test]
    fn the_state_cannot_close_its_element() {
        let text = Page::new().text(r#"{"key": "</script><img>"}"#);
        let text = std::str::from_utf8(&text).unwrap();
        let (_, state) = text.split_once(r#"id="state">"#).unwrap();
        let (state, _) = state.split_once('<').unwrap();
        let state: serde_json::Value = serde_json::from_str(state).unwrap();
        assert_eq!(state["key"], "</script><img>");
    }

    #[test]
    fn scripts_cannot_close_their_element() {
        for script in [&SCRIPTS[..], &[LIBRARY]].concat() {
            assert!(!script.contains("</script"));
        }
        assert!(!STYLE.concat().contains("</style"));
    }
}
