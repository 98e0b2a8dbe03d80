//! `ModifyKeyRoute`: another key towards servers; the client reads its own.

use std::sync::Arc;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, Outcome, OwnedReply, Request};

/// Changes keys on their way to servers.
#[derive(Debug)]
pub struct ModifyKeyRoute {
    /// The child.
    pub target: RouteRef,
    /// Put before keys that do not begin with it.
    pub ensure_prefix: Vec<u8>,
    /// Replaced by `ensure_prefix` where keys begin with it.
    pub replace_prefix: Option<Vec<u8>>,
    /// Put behind keys.
    pub suffix: Vec<u8>,
    /// The routing prefix that keys have from here on; `None`: as it is.
    pub routing_prefix: Option<Vec<u8>>,
}

impl ModifyKeyRoute {
    fn key(&self, key: &[u8]) -> Vec<u8> {
        let replaced = self.replace_prefix.as_deref().and_then(|prefix| key.strip_prefix(prefix));
        let mut new = Vec::with_capacity(self.ensure_prefix.len() + key.len() + self.suffix.len());
        match replaced {
            Some(rest) => {
                new.extend_from_slice(&self.ensure_prefix);
                new.extend_from_slice(rest);
            }
            None => {
                if !key.starts_with(&self.ensure_prefix) {
                    new.extend_from_slice(&self.ensure_prefix);
                }
                new.extend_from_slice(key);
            }
        }
        new.extend_from_slice(&self.suffix);
        new
    }
}

impl Route for ModifyKeyRoute {
    fn name(&self) -> String {
        format!("modify-key|{}", String::from_utf8_lossy(&self.ensure_prefix))
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let key = self.key(request.key);
            if key.len() > proto::KEY_BYTES_MAX {
                let value = b"bad key".to_vec();
                return OwnedReply { value, ..OwnedReply::from(Failure::ClientError) };
            }
            let prefix = self.routing_prefix.as_deref().unwrap_or(request.prefix);
            let changed = Request { key: &key, prefix, hashed: None, ..request };
            let mut reply = self.target.route(cx, changed).await;
            if let Outcome::Meta(_) = reply.outcome {
                let words = std::mem::take(&mut reply.words);
                reply.words = with_key(&words, request.key);
            }
            reply
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.target)]
    }
}

/// Words of a meta reply, with the client's key after `k`.
fn with_key(words: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(words.len() + key.len());
    for word in words.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
        out.push(b' ');
        if word.first() == Some(&b'k') {
            out.push(b'k');
            out.extend_from_slice(key);
        } else {
            out.extend_from_slice(word);
        }
    }
    out
}
