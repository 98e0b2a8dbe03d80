//! One HTTP request to this endpoint, and its answer.

use std::sync::Arc;

use crate::health;
use crate::held::Held;
use crate::program::Pages;

/// The longest head of a request, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 8192;

/// The maximum number of header lines of a request.
const HEADERS_MAX: usize = 64;

/// The state of the bytes so far.
pub(crate) enum Head {
    /// The start of a request.
    Partial,
    /// A request.
    Whole(Request),
    /// Not an HTTP request.
    Broken,
}

/// The part of a request that matters.
pub(crate) struct Request {
    method: String,
    path: String,
    /// The client prefers Prometheus's messages to its text.
    wants_messages: bool,
}

/// Reads the head of a request.
pub(crate) fn head(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Head::Partial,
        Ok(httparse::Status::Complete(_)) => {
            let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
            let path = target.split('?').next().unwrap_or_default();
            let accept =
                request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("accept"));
            let accept = accept.and_then(|header| std::str::from_utf8(header.value).ok());
            let wants_messages = accept.is_some_and(prefers_messages);
            let (method, path) = (method.to_owned(), path.to_owned());
            Head::Whole(Request { method, path, wants_messages })
        }
        Err(_) => Head::Broken,
    }
}

impl Request {
    /// The response: head and body, or only the head if only that is requested.
    pub(crate) fn answer(&self, pages: &dyn Pages, held: &Held) -> Arc<Vec<u8>> {
        match self.method.as_str() {
            "GET" => self.whole(pages, held),
            "HEAD" => Arc::new(head_of(&self.whole(pages, held))),
            _ => {
                let why = "only GET and HEAD are here\n";
                Arc::new(response("405 Method Not Allowed", PLAIN, why))
            }
        }
    }

    /// The response to GET.
    fn whole(&self, pages: &dyn Pages, held: &Held) -> Arc<Vec<u8>> {
        let checks = match self.path.as_str() {
            "/metrics" if self.wants_messages => {
                let make = || response("200 OK", MESSAGES, pages.metrics().into_messages());
                return held.messages.get(make);
            }
            "/metrics" => {
                let make = || response("200 OK", PROMETHEUS, pages.metrics().into_text());
                return held.text.get(make);
            }
            "/livez" => pages.live(),
            "/readyz" => pages.ready(),
            "/startupz" => pages.started(),
            "/" => return Arc::new(response("200 OK", PLAIN, INDEX)),
            _ => return Arc::new(response("404 Not Found", PLAIN, INDEX)),
        };
        let (is_well, body) = health::json(&checks);
        let status = if is_well { "200 OK" } else { "503 Service Unavailable" };
        Arc::new(response(status, JSON, body))
    }
}

/// The head of a response.
fn head_of(response: &[u8]) -> Vec<u8> {
    const END: &[u8] = b"\r\n\r\n";
    let body = response.windows(END.len()).position(|bytes| bytes == END);
    response[..body.map_or(0, |start| start + END.len())].to_vec()
}

/// True if this list of types contains the messages, and no text type has a higher preference.
fn prefers_messages(accept: &str) -> bool {
    let quality = |range: &str| {
        let given = range.split(';').find_map(|word| word.trim().strip_prefix("q="));
        given.map_or(1.0, |given| given.parse::<f64>().unwrap_or(0.0))
    };
    let best = |is_meant: &dyn Fn(&str) -> bool| {
        let ranges = accept.split(',').filter(|range| is_meant(range.trim()));
        ranges.map(quality).fold(0.0, f64::max)
    };
    let messages = best(&|range| {
        range.starts_with("application/vnd.google.protobuf") && range.contains("encoding=delimited")
    });
    messages > 0.0 && messages >= best(&|range| range.starts_with("text/"))
}

/// The response to an invalid request.
pub(crate) fn refusal() -> Vec<u8> {
    response("400 Bad Request", PLAIN, "this is no HTTP request\n")
}

/// The response to a head over the limit.
pub(crate) fn too_long() -> Vec<u8> {
    response("431 Request Header Fields Too Large", PLAIN, "the request is too long\n")
}

fn response(status: &str, kind: &str, body: impl Into<Vec<u8>>) -> Vec<u8> {
    let mut bytes = body.into();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        bytes.len()
    );
    // In place: a page may have megabytes, and its reader may keep it for a while.
    bytes.splice(0..0, head.into_bytes());
    bytes.shrink_to_fit();
    bytes
}

/// The text format's own type, by which Prometheus knows it.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of the messages.
const MESSAGES: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

const PLAIN: &str = "text/plain; charset=utf-8";

const JSON: &str = "application/json";

const INDEX: &str = "/metrics   numbers for Prometheus\n\
/livez     200 while the threads turn\n\
/readyz    200 while clients are welcome\n\
/startupz  200 once clients are served\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Check;
    use crate::page::Page;

    struct Fixed;

    impl Pages for Fixed {
        fn metrics(&self) -> Page {
            let mut page = Page::new("");
            page.sample("x", &[], 1);
            page
        }

        fn live(&self) -> Vec<Check> {
            vec![Check::new("a", None)]
        }

        fn ready(&self) -> Vec<Check> {
            vec![Check::new("a", Some("because".to_owned()))]
        }

        fn started(&self) -> Vec<Check> {
            Vec::new()
        }
    }

    fn answer(text: &str) -> String {
        match head(format!("{text}\r\n\r\n").as_bytes()) {
            Head::Whole(request) => {
                let answer = request.answer(&Fixed, &Held::default());
                String::from_utf8_lossy(&answer).into_owned()
            }
            Head::Partial => "partial".to_owned(),
            Head::Broken => "broken".to_owned(),
        }
    }

    #[test]
    fn each_path_has_its_answer() {
        let text = answer("GET /metrics HTTP/1.1\r\nHost: x");
        let page = "# TYPE x gauge\nx 1\n";
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.ends_with(&format!("\r\n\r\n{page}")), "{text}");
        assert!(text.contains(&format!("Content-Length: {}\r\n", page.len())), "{text}");
        assert!(answer("GET /livez?verbose HTTP/1.1").starts_with("HTTP/1.1 200 "));
        assert!(answer("GET /startupz HTTP/1.0").starts_with("HTTP/1.1 200 "));
        let text = answer("GET /readyz HTTP/1.1");
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("because"), "{text}");
        let text = answer("HEAD /metrics HTTP/1.1");
        assert!(text.contains("Content-Length: 19\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        for (request, status) in
            [("GET /metrics2 HTTP/1.1", "404"), ("POST /metrics HTTP/1.1", "405")]
        {
            assert!(answer(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request}");
        }
    }

    #[test]
    fn partial_and_invalid_requests_are_distinguished() {
        assert!(matches!(head(b"GET /metrics HTTP/1.1\r\nHost:"), Head::Partial));
        assert!(matches!(head(b"GET /metrics HTTP/9.9\r\n\r\n"), Head::Broken));
        assert!(matches!(head(b"\0\0\0\r\n\r\n"), Head::Broken));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert!(matches!(head(many.as_bytes()), Head::Broken));
    }

    #[test]
    fn protobuf_is_sent_if_the_client_prefers_it() {
        let proto = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily";
        let wanted = format!("{proto}; encoding=delimited");
        // Prometheus with native histograms, and without.
        let native = format!(
            "{wanted};q=0.6, application/openmetrics-text;version=1.0.0;q=0.5, \
             text/plain;version=0.0.4;q=0.3, */*;q=0.1"
        );
        let usual =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert!(prefers_messages(&native) && prefers_messages(&wanted));
        let reluctant = format!("{wanted};q=0.2,text/plain");
        let none = format!("{wanted};q=0");
        for accept in [usual, &reluctant, &none, proto, "*/*", ""] {
            assert!(!prefers_messages(accept), "{accept}");
        }
        let answer = answer(&format!("GET /metrics HTTP/1.1\r\naccept: {native}"));
        assert!(answer.contains("Content-Type: application/vnd.google.protobuf; "), "{answer}");
    }
}
