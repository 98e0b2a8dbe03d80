//! Meta replies that no server gave: for kept deletes, and for routes that use no server.

use proto::answer::MetaCode;
use proto::number::write_u64;
use proto::text::Words;
use upstream::{Command, Outcome, OwnedReply, Request, write_key_words};

/// Creates a reply of this program.
pub(crate) fn own_reply(outcome: Outcome, request: &Request<'_>) -> OwnedReply {
    let mut reply = OwnedReply::of(outcome);
    if matches!(outcome, Outcome::Meta(_)) {
        write_words(&mut reply.words, request);
    }
    reply
}

/// Adds the words that our servers return even without an item, unless they are present: the key
/// and the opaque, by which clients find the request, and for `ms` the cas unique 0 and the size of
/// the value.
pub(crate) fn add_words(reply: &mut OwnedReply, request: &Request<'_>) {
    let is_missing = matches!(reply.outcome, Outcome::Meta(code) if is_made_here(code));
    if is_missing && reply.words.is_empty() {
        write_words(&mut reply.words, request);
    }
}

fn write_words(out: &mut Vec<u8>, request: &Request<'_>) {
    let is_set = request.op == Command::MetaSet;
    for word in Words::new(request.words) {
        match word.first() {
            Some(b'k') => write_key_words(out, request.key, request.base64),
            Some(b'O') => {
                out.push(b' ');
                out.extend_from_slice(word);
            }
            Some(b'c') if is_set => out.extend_from_slice(b" c0"),
            Some(b's') if is_set => {
                out.extend_from_slice(b" s");
                write_u64(out, request.value.len() as u64);
            }
            _ => {}
        }
    }
}

/// The codes of [`crate::route::default_outcome`].
const fn is_made_here(code: MetaCode) -> bool {
    matches!(code, MetaCode::En | MetaCode::Nf | MetaCode::Ns)
}
