//! Leases that clients request by `lease-get`, or by `mg` with `G`, and return by `lease-set`, or
//! by `ms` with `G`.

use proto::answer::MetaCode;
use proto::number::parse_u64;
use upstream::{Command, Outcome, OwnedReply, Request};

use super::words;

/// The token that asks to wait: another client fills the key.
pub(super) const HOT_MISS: u64 = 1;

/// Returns true if the client requests a lease. With `N`, an `mg` creates the missing item instead.
pub(super) fn is_asked(request: &Request<'_>) -> bool {
    let has = |letter| words::find(request.words, letter).is_some();
    match request.op {
        Command::LeaseGet => true,
        Command::MetaGet => has(b'G') && !has(b'N'),
        _ => false,
    }
}

/// Returns true if the request stores with a token.
pub(super) fn is_used(request: &Request<'_>) -> bool {
    match request.op {
        Command::LeaseSet => true,
        Command::MetaSet => words::find(request.words, b'G').is_some(),
        _ => false,
    }
}

/// The words without the lease or its token.
pub(super) fn without(words: &[u8]) -> Vec<u8> {
    words::without(words, |word| word.first() == Some(&b'G'))
}

/// The token of a reply that has no fresh value.
pub(super) fn token(request: &Request<'_>, reply: &OwnedReply) -> Option<u64> {
    match reply.outcome {
        Outcome::Lease => Some(reply.number),
        Outcome::Meta(MetaCode::Hd | MetaCode::Va) if is_asked(request) => {
            meta_token(request, reply)
        }
        _ => None,
    }
}

/// A token follows `G`, and `Z` asks to wait. `Z` also marks an item that another client loads
/// early. Such an item has a cas unique, and usually a value. If the request asks for neither,
/// the reply counts as that of an item.
fn meta_token(request: &Request<'_>, reply: &OwnedReply) -> Option<u64> {
    if let Some(word) = words::find(&reply.words, b'G') {
        return word.get(1..).and_then(parse_u64);
    }
    words::find(&reply.words, b'Z')?;
    let is_absent = match words::find(&reply.words, b'c') {
        Some(unique) => unique == b"c0",
        None => words::find(request.words, b'v').is_some() && reply.value.is_empty(),
    };
    is_absent.then_some(HOT_MISS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_replies_without_a_fresh_value_have_a_token() {
        let request = Request { words: b"v c G R5", ..Request::new(Command::MetaGet, b"k") };
        let of = |words: &str, value: &str| {
            let (words, value) = (words.as_bytes().to_vec(), value.as_bytes().to_vec());
            let reply = OwnedReply::of(Outcome::Meta(MetaCode::Va));
            token(&request, &OwnedReply { words, value, ..reply })
        };
        assert_eq!(of(" kG c0 W G77", ""), Some(77));
        assert_eq!(of(" c0 X W G77", "stale"), Some(77));
        assert_eq!([of(" c0 Z", ""), of(" Z", ""), of(" c0 X Z", "stale")], [Some(HOT_MISS); 3]);
        // Items, some of which a client loads early.
        assert_eq!([of(" c5", "v"), of(" c5 W", "v"), of(" c5 Z", ""), of(" Z", "v")], [None; 4]);
        for (words, told) in [("v c", " W"), ("v N30 G", " Z"), ("s G", " s1 Z"), ("t G", " t9 Z")]
        {
            let request = Request { words: words.as_bytes(), ..request };
            let words = told.as_bytes().to_vec();
            let reply = OwnedReply { words, ..OwnedReply::of(Outcome::Meta(MetaCode::Va)) };
            assert_eq!(token(&request, &reply), None, "{told}");
        }
    }
}
