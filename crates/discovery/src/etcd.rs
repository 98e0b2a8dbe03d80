//! etcd: every key below a prefix is a server, by the HTTP gateway of etcd 3.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deadline::Deadline;
use crate::{ANSWER_BYTES_MAX, Access, Member};

#[derive(Debug, Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
    #[serde(default)]
    more: bool,
    /// The number of keys in the range: text, as protocol buffers write 64-bit numbers in JSON, or
    /// a number.
    count: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Authenticated {
    token: String,
}

#[derive(Debug, Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

/// The servers below `PREFIX` of `HOST:PORT[,HOST:PORT...]/PREFIX`, from the first endpoint that
/// answers; each has an equal part of the remaining time. A server is the text of a value, or, if
/// that is empty, the last part of the key; so one that registers itself with a lease disappears
/// with it.
pub(crate) fn servers(
    source: &str,
    scheme: &str,
    access: &Access,
    deadline: Deadline,
) -> io::Result<Vec<Member>> {
    let (endpoints, prefix) = source.split_once('/').unwrap_or((source, ""));
    if prefix.is_empty() {
        return Err(io::Error::other("it has no prefix: etcd:HOST:PORT/PREFIX"));
    }
    let mut failed = io::Error::other("it has no endpoint");
    let tries = endpoints.split(',').count();
    for (place, endpoint) in endpoints.split(',').enumerate() {
        let own = deadline.of_first(tries - place);
        let gateway = Gateway::of(scheme, endpoint, access, own);
        match range(&gateway, prefix).and_then(|text| members(&text, prefix)) {
            Ok(members) => return Ok(members),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn range(gateway: &Gateway<'_>, prefix: &str) -> io::Result<String> {
    let end = end_of(prefix.as_bytes());
    let (key, end) = (STANDARD.encode(prefix), STANDARD.encode(end));
    let token = gateway.token()?;
    gateway.post("/v3/kv/range", &json!({ "key": key, "range_end": end }), token.as_deref())
}

/// One endpoint.
struct Gateway<'a> {
    agent: ureq::Agent,
    base: String,
    access: &'a Access,
    deadline: Deadline,
}

impl<'a> Gateway<'a> {
    fn of(scheme: &str, endpoint: &str, access: &'a Access, deadline: Deadline) -> Self {
        let agent = ureq::Agent::config_builder().tls_config(access.http()).build().into();
        Self { agent, base: format!("{scheme}://{endpoint}"), access, deadline }
    }

    /// The token of a login; `None` without one.
    fn token(&self) -> io::Result<Option<String>> {
        let Some((name, password)) = &self.access.login else { return Ok(None) };
        let body = json!({ "name": name, "password": password });
        let text = self.post("/v3/auth/authenticate", &body, None)?;
        let answer: Authenticated = serde_json::from_str(&text).map_err(io::Error::other)?;
        Ok(Some(answer.token))
    }

    fn post(&self, path: &str, body: &Value, token: Option<&str>) -> io::Result<String> {
        let failed = |error: ureq::Error| io::Error::other(format!("{}: {error}", self.base));
        let request = self.agent.post(format!("{}{path}", self.base));
        let timed = request.config().timeout_global(Some(self.deadline.left()?));
        let mut request = timed.build().header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let mut response = request.send(body.to_string()).map_err(failed)?;
        response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(failed)
    }
}

/// The first key after all with the prefix `prefix`; if there is none, a zero byte, which means the
/// end of all keys.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// The servers in an answer, which must be all keys below the prefix.
pub(crate) fn members(text: &str, prefix: &str) -> io::Result<Vec<Member>> {
    let range: Range = serde_json::from_str(text).map_err(io::Error::other)?;
    if range.more {
        return Err(io::Error::other("it has more keys than it tells"));
    }
    // A gateway or a cache in between may have cut the list.
    if let Some(count) = &range.count {
        let len = range.kvs.len();
        let counted = count.as_u64().or_else(|| count.as_str()?.parse().ok());
        if counted != u64::try_from(len).ok() {
            return Err(io::Error::other(format!("it counts {count} keys, but sends {len}")));
        }
    }
    let plain =
        |text: &str| STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let member = |pair: &Pair| {
        let (key, value) = (plain(&pair.key)?, plain(&pair.value)?);
        let value = value.trim();
        key.starts_with(prefix).then_some(())?;
        Member::parse(if value.is_empty() { key.rsplit('/').next()? } else { value })
    };
    let wrong = |pair: &Pair| {
        let key = STANDARD.decode(&pair.key).unwrap_or_default();
        let key = String::from_utf8_lossy(&key);
        let is_below = key.starts_with(prefix);
        let what = if is_below { "no server" } else { "not below the prefix" };
        io::Error::other(format!("the key {key:?} is {what}"))
    };
    range.kvs.iter().map(|pair| member(pair).ok_or_else(|| wrong(pair))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_range_is_the_next_prefix() {
        assert_eq!(end_of(b"ab"), b"ac");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff\xff"), [0]);
    }

    fn pair(key: &str, value: &str) -> String {
        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
        format!(r#"{{"key": "{key}", "value": "{value}"}}"#)
    }

    fn text(pairs: &[String]) -> String {
        format!(r#"{{"kvs": [{}]}}"#, pairs.join(", "))
    }

    #[test]
    fn servers_are_read_from_values_or_keys() {
        let members = |text: &str| members(text, "m/");
        let good = text(&[pair("m/1", "10.0.0.1:11211\n"), pair("m/h.example:7", "")]);
        let servers: Vec<String> = members(&good).unwrap().iter().map(Member::server).collect();
        assert_eq!(servers, ["10.0.0.1:11211", "h.example:7"]);
        assert_eq!(members("{}").unwrap(), []);
        assert!(members(&text(&[pair("m/1", "no port")])).is_err());
        assert!(members(r#"{"more": true}"#).is_err() && members("oops").is_err());
    }

    #[test]
    fn an_answer_must_have_all_keys_that_it_counts() {
        let one = pair("m/1", "10.0.0.1:11211");
        let counted = |count: &str| format!(r#"{{"kvs": [{one}], "count": {count}}}"#);
        for count in [r#""1""#, "1", "null"] {
            assert_eq!(members(&counted(count), "m/").unwrap().len(), 1, "{count}");
        }
        for count in [r#""3""#, "3", r#""0""#, r#""oops""#] {
            let error = members(&counted(count), "m/").unwrap_err().to_string();
            assert_eq!(error, format!("it counts {count} keys, but sends 1"));
        }
        assert!(members(r#"{"count": "2"}"#, "m/").is_err());
    }

    #[test]
    fn keys_of_another_prefix_are_no_servers() {
        let other = text(&[pair("m/1", "10.0.0.1:11211"), pair("/other/2", "10.0.0.2:11211")]);
        let error = members(&other, "m/").unwrap_err().to_string();
        assert_eq!(error, r#"the key "/other/2" is not below the prefix"#);
    }
}
