//! The checks before every answer: the user of a request, and the page that sent it.
//!
//! A page of another site can make a browser send requests here. It cannot read the answers,
//! because no answer allows that; and `Host` checks refuse its names for this address (DNS
//! rebinding). An action needs `Origin` and a token that only our own page has read.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, StatusCode};

use crate::login::Logins;

/// The paths of actions.
const ACTIONS: [&str; 3] = ["/api/flush", "/api/drain", "/api/add"];

/// The rules for requests.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Names of this host in addition to addresses and `localhost`.
    pub(crate) names: Vec<String>,
    /// The users who may look; everyone if there are none.
    pub(crate) logins: Option<Logins>,
    /// True if users may act.
    pub(crate) acts: bool,
    /// The secret that an action must contain.
    pub(crate) token: String,
}

/// A request that is not served.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) &'static str);

impl Admission {
    /// The user of an allowed request; empty without logins.
    ///
    /// # Errors
    ///
    /// Returns the reason for a refusal.
    pub(crate) async fn pass(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<String, Refusal> {
        self.addressed(method, path, headers)?;
        let Some(logins) = &self.logins else { return Ok(String::new()) };
        let user = logins.user(text(headers, AUTHORIZATION)).await;
        user.ok_or(Refusal(StatusCode::UNAUTHORIZED, "a login is needed"))
    }

    /// The checks before the login.
    fn addressed(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, HOST).unwrap_or_default();
        if !self.is_own(host) {
            let why = "this is not the name of the console: see --name";
            return Err(Refusal(StatusCode::MISDIRECTED_REQUEST, why));
        }
        if method == Method::GET || method == Method::HEAD {
            return Ok(());
        }
        if method != Method::POST || !ACTIONS.contains(&path) {
            return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are here"));
        }
        if !self.acts || self.logins.is_none() {
            return Err(Refusal(StatusCode::FORBIDDEN, "this console has no actions"));
        }
        let origin = text(headers, ORIGIN).unwrap_or_default();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if own != Some(host) {
            return Err(Refusal(StatusCode::FORBIDDEN, "the request is of another site"));
        }
        let token = text(headers, HeaderName::from_static("x-console-token")).unwrap_or_default();
        if token != self.token {
            return Err(Refusal(StatusCode::FORBIDDEN, "the token is missing or old: load again"));
        }
        Ok(())
    }

    /// True for an address, which no other site can have as its name, for `localhost`, and for the
    /// configured names.
    fn is_own(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(acts: bool) -> Admission {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, "ann:secret\n").unwrap();
        let logins = acts.then(|| Logins::open(&file, |_| {}).unwrap());
        let names = vec!["cache.internal".to_owned()];
        Admission { names, logins, acts, token: "t0".to_owned() }
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        all.iter().map(pair).collect()
    }

    fn of_host(admission: &Admission, host: &'static str) -> Option<u16> {
        let result = admission.addressed(&Method::GET, "/", &headers(&[("host", host)]));
        result.err().map(|refusal| refusal.0.as_u16())
    }

    #[test]
    fn names_of_other_sites_are_refused() {
        let admission = admission(false);
        let own = ["127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "localhost:1", "Cache.Internal:80"];
        for host in own {
            assert_eq!(of_host(&admission, host), None, "{host}");
        }
        for host in ["evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil.example"] {
            assert_eq!(of_host(&admission, host), Some(421), "{host}");
        }
        assert!(admission.addressed(&Method::GET, "/", &HeaderMap::new()).is_err());
    }

    #[test]
    fn an_action_needs_permission_origin_and_token() {
        let of = |admission: &Admission, path: &str, all: &[(&'static str, &str)]| {
            let result = admission.addressed(&Method::POST, path, &headers(all));
            result.err().map(|refusal| refusal.0.as_u16())
        };
        let whole =
            [("host", "127.0.0.1:8"), ("origin", "http://127.0.0.1:8"), ("x-console-token", "t0")];
        for action in ACTIONS {
            assert_eq!(of(&admission(true), action, &whole), None);
            assert_eq!(of(&admission(true), action, &whole[..2]), Some(403));
            assert_eq!(of(&admission(false), action, &whole), Some(403));
        }
        assert_eq!(of(&admission(true), "/api/other", &whole), Some(405));
        assert_eq!(of(&admission(false), "/api/flush", &whole), Some(403), "read-only");
        assert_eq!(of(&admission(true), "/api/flush", &whole[..2]), Some(403), "no token");
        let foreign = [whole[0], ("origin", "http://evil.example"), whole[2]];
        assert_eq!(of(&admission(true), "/api/flush", &foreign), Some(403));
        assert_eq!(
            of(&admission(true), "/api/flush", &[whole[0], whole[2]]),
            Some(403),
            "no origin"
        );
        let put = admission(true).addressed(&Method::PUT, "/api/flush", &headers(&whole));
        assert_eq!(put.unwrap_err().0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_login_is_required_if_there_are_users() {
        let admission = admission(true);
        let without = headers(&[("host", "127.0.0.1")]);
        let refusal = admission.pass(&Method::GET, "/", &without).await.unwrap_err();
        assert_eq!(refusal.0, StatusCode::UNAUTHORIZED);
        // ann:secret
        let with = headers(&[("host", "127.0.0.1"), ("authorization", "Basic YW5uOnNlY3JldA==")]);
        assert_eq!(admission.pass(&Method::GET, "/", &with).await, Ok("ann".to_owned()));
    }
}
