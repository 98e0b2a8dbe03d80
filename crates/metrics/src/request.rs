//! One HTTP request as this endpoint reads it, and its answer.

use crate::health;
use crate::program::Pages;

/// The longest head of a request, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 8192;

/// Header lines of a request.
const HEADERS_MAX: usize = 64;

/// What the bytes so far are.
pub(crate) enum Head {
    /// The beginning of a request.
    Partial,
    /// A request.
    Whole(Request),
    /// No request of HTTP.
    Broken,
}

/// The part of a request that matters.
pub(crate) struct Request {
    method: String,
    path: String,
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
            Head::Whole(Request { method: method.to_owned(), path: path.to_owned() })
        }
        Err(_) => Head::Broken,
    }
}

impl Request {
    /// The whole response, head and body.
    pub(crate) fn answer(&self, pages: &dyn Pages) -> String {
        if !matches!(self.method.as_str(), "GET" | "HEAD") {
            return response("405 Method Not Allowed", PLAIN, "only GET and HEAD are here\n");
        }
        let checks = match self.path.as_str() {
            "/metrics" => return self.response("200 OK", PROMETHEUS, &pages.metrics().into_text()),
            "/livez" => pages.live(),
            "/readyz" => pages.ready(),
            "/startupz" => pages.started(),
            "/" => return self.response("200 OK", PLAIN, INDEX),
            _ => return self.response("404 Not Found", PLAIN, INDEX),
        };
        let (is_well, body) = health::json(&checks);
        let status = if is_well { "200 OK" } else { "503 Service Unavailable" };
        self.response(status, JSON, &body)
    }

    fn response(&self, status: &str, kind: &str, body: &str) -> String {
        let mut text = response(status, kind, body);
        if self.method == "HEAD" {
            text.truncate(text.len() - body.len());
        }
        text
    }
}

/// The response to what is no request.
pub(crate) fn refusal() -> String {
    response("400 Bad Request", PLAIN, "this is no HTTP request\n")
}

/// The response to a head over the limit.
pub(crate) fn too_long() -> String {
    response("431 Request Header Fields Too Large", PLAIN, "the request is too long\n")
}

fn response(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The text format's own type, by which Prometheus knows it.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

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
            Head::Whole(request) => request.answer(&Fixed),
            Head::Partial => "partial".to_owned(),
            Head::Broken => "broken".to_owned(),
        }
    }

    #[test]
    fn each_path_has_its_answer() {
        let text = answer("GET /metrics HTTP/1.1\r\nHost: x");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nx 1\n"));
        assert!(text.contains("Content-Length: 4\r\n"), "{text}");
        assert!(answer("GET /livez?verbose HTTP/1.1").starts_with("HTTP/1.1 200 "));
        assert!(answer("GET /startupz HTTP/1.0").starts_with("HTTP/1.1 200 "));
        let text = answer("GET /readyz HTTP/1.1");
        assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("because"), "{text}");
        let text = answer("HEAD /metrics HTTP/1.1");
        assert!(text.contains("Content-Length: 4\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        for (request, status) in
            [("GET /metrics2 HTTP/1.1", "404"), ("POST /metrics HTTP/1.1", "405")]
        {
            assert!(answer(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request}");
        }
    }

    #[test]
    fn what_is_not_whole_or_no_request_is_told_apart() {
        assert!(matches!(head(b"GET /metrics HTTP/1.1\r\nHost:"), Head::Partial));
        assert!(matches!(head(b"GET /metrics HTTP/9.9\r\n\r\n"), Head::Broken));
        assert!(matches!(head(b"\0\0\0\r\n\r\n"), Head::Broken));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert!(matches!(head(many.as_bytes()), Head::Broken));
    }
}
