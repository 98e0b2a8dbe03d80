//! Replies as the client reads them.

use std::time::{SystemTime, UNIX_EPOCH};

use proto::answer::MetaCode;
use proto::number::{self, write_u64};
use proto::reply::{self, CRLF};
use upstream::{Command, Failure, Outcome, Reply};

use super::slot::{Kind, Slot};

/// Appends the reply for `slot`. `client_key` is the place of the client's key in `heap`, if
/// servers saw another (else empty). Returns true for an error.
#[inline]
pub(crate) fn reply(
    heap: &mut Vec<u8>,
    slot: &Slot,
    client_key: (usize, usize),
    reply: &Reply<'_>,
) -> bool {
    if slot.is_mute {
        return false;
    }
    if let Some(packet) = slot.packet {
        let key = heap.get(client_key.0..client_key.0 + client_key.1).unwrap_or_default().to_vec();
        let key = if key.is_empty() { reply.key } else { &key };
        super::packet::write(heap, slot, packet, key, reply);
        return false;
    }
    match reply.outcome {
        Outcome::Found => value(heap, slot, client_key, reply),
        Outcome::NotFound if matches!(slot.kind, Kind::Key | Kind::OnlyKey) => {}
        Outcome::Failed(failure) => {
            error(heap, failure, reply.value);
            return true;
        }
        Outcome::OnlyDeleted => {
            error(heap, Failure::RemoteError, reply.value);
            return true;
        }
        Outcome::Meta(code) if slot.op == Command::MetaInfo => {
            info(heap, client_key, code, reply);
        }
        Outcome::Meta(code) => meta(heap, slot, client_key, code, reply),
        _ => heap.extend_from_slice(plain(reply.outcome)),
    }
    match reply.outcome {
        Outcome::Number => {
            write_u64(heap, reply.number);
            heap.extend_from_slice(CRLF);
        }
        Outcome::Version => {
            heap.extend_from_slice(reply.value);
            heap.extend_from_slice(CRLF);
        }
        Outcome::Lease | Outcome::MetaInfo => with_key(heap, client_key, reply),
        _ => {}
    }
    false
}

const fn plain(outcome: Outcome) -> &'static [u8] {
    match outcome {
        Outcome::Deleted => reply::DELETED,
        Outcome::Exists => reply::EXISTS,
        Outcome::NotFound => reply::NOT_FOUND,
        Outcome::NotStored => reply::NOT_STORED,
        Outcome::Ok => reply::OK,
        Outcome::StaleStored => b"STALE_STORED\r\n",
        Outcome::Stored => reply::STORED,
        Outcome::Touched => reply::TOUCHED,
        Outcome::Version => b"VERSION ",
        Outcome::Failed(_)
        | Outcome::Found
        | Outcome::Lease
        | Outcome::Meta(_)
        | Outcome::MetaInfo
        | Outcome::Number
        | Outcome::OnlyDeleted => b"",
    }
}

/// Appends the line of a failure, with the server's text, if any.
pub(crate) fn error(heap: &mut Vec<u8>, failure: Failure, words: &[u8]) {
    let word: &[u8] = match failure {
        Failure::ClientError => b"CLIENT_ERROR ",
        _ => b"SERVER_ERROR ",
    };
    heap.extend_from_slice(word);
    heap.extend_from_slice(if words.is_empty() { failure.sentence().as_bytes() } else { words });
    heap.extend_from_slice(CRLF);
}

fn value(heap: &mut Vec<u8>, slot: &Slot, client_key: (usize, usize), reply: &Reply<'_>) {
    let cas = matches!(slot.op, Command::Gets | Command::Gats).then_some(reply.number);
    if client_key.1 == 0 {
        reply::write_value(heap, reply.key, reply.flags, reply.value, cas);
    } else {
        let key = heap.get(client_key.0..client_key.0 + client_key.1).unwrap_or_default().to_vec();
        reply::write_value(heap, &key, reply.flags, reply.value, cas);
    }
}

/// `LVALUE key token flags bytes` or `META key facts`.
fn with_key(heap: &mut Vec<u8>, client_key: (usize, usize), reply: &Reply<'_>) {
    let key = heap.get(client_key.0..client_key.0 + client_key.1).unwrap_or_default().to_vec();
    let key = if key.is_empty() { reply.key } else { &key };
    if reply.outcome == Outcome::MetaInfo {
        heap.extend_from_slice(b"META ");
        heap.extend_from_slice(key);
        heap.push(b' ');
        heap.extend_from_slice(reply.words);
    } else {
        heap.extend_from_slice(b"LVALUE ");
        heap.extend_from_slice(key);
        for number in [reply.number, u64::from(reply.flags), reply.value.len() as u64] {
            heap.push(b' ');
            write_u64(heap, number);
        }
        heap.extend_from_slice(CRLF);
        heap.extend_from_slice(reply.value);
    }
    heap.extend_from_slice(CRLF);
}

fn meta(
    heap: &mut Vec<u8>,
    slot: &Slot,
    client_key: (usize, usize),
    code: MetaCode,
    reply: &Reply<'_>,
) {
    if slot.is_quiet && is_commonplace(slot.op, code) {
        return;
    }
    heap.extend_from_slice(code.letters());
    if code == MetaCode::Va {
        heap.push(b' ');
        write_u64(heap, reply.value.len() as u64);
    }
    if client_key.1 == 0 {
        heap.extend_from_slice(reply.words);
    } else {
        let key = heap.get(client_key.0..client_key.0 + client_key.1).unwrap_or_default().to_vec();
        reply.write_words(heap, code, &key, slot.is_base64);
    }
    heap.extend_from_slice(CRLF);
    if code == MetaCode::Va {
        heap.extend_from_slice(reply.value);
        heap.extend_from_slice(CRLF);
    }
}

/// mcrouter's answer to `metaget`, from the reply to `me`; a miss is silent. No server reports the
/// time of a store, so the age is unknown.
fn info(heap: &mut Vec<u8>, client_key: (usize, usize), code: MetaCode, reply: &Reply<'_>) {
    if code != MetaCode::Me {
        return;
    }
    let mut words = reply.words.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let served = words.next().unwrap_or_default();
    let key = heap.get(client_key.0..client_key.0 + client_key.1).unwrap_or_default().to_vec();
    // -1 is none. 1.6.18 writes the remaining seconds as a negative number.
    let left = words.find_map(|word| word.strip_prefix(b"exp=")).filter(|left| *left != b"-1");
    let left = left.and_then(|left| number::parse_u64(left.strip_prefix(b"-").unwrap_or(left)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    heap.extend_from_slice(b"META ");
    heap.extend_from_slice(if key.is_empty() { served } else { &key });
    heap.extend_from_slice(b" age: unknown; exptime: ");
    write_u64(heap, left.map_or(0, |left| now.as_secs().saturating_add(left)));
    heap.extend_from_slice(b"; from: unknown; is_transient: 0\r\n");
}

/// Returns true for replies that `q` suppresses.
const fn is_commonplace(op: Command, code: MetaCode) -> bool {
    match op {
        Command::MetaGet => matches!(code, MetaCode::En),
        Command::MetaArithmetic => matches!(code, MetaCode::Hd | MetaCode::Va),
        _ => matches!(code, MetaCode::Hd),
    }
}
