//! Requests that are served by UDP: retrieval and `version`, but no request that changes anything.
//!
//! A datagram's source can be forged, so any sender could store or delete in another's name. `mg`
//! is among the retrieval commands only without the flags that store, touch or claim. It shows a
//! stale item without taking the right to renew it.
//!
//! A line that is not a request gets no answer: it may be the answer of another server, which would
//! answer the error in turn, endlessly.

use proto::binary::Command;
use proto::meta;
use proto::text::Request;

/// The answer in text to all other requests; the rest of the datagram is dropped.
pub(crate) const REFUSED: &[u8] =
    b"CLIENT_ERROR only get, gets, mg, mn and version are served by UDP\r\n";

/// True if a text or meta request may come by UDP.
pub(crate) fn serves_text(request: &Request<'_>) -> bool {
    match request {
        Request::Get(line) => line.exptime.is_none() && !line.with_lease,
        Request::Meta(request) => match request.command {
            meta::Command::Get => {
                let options = &request.options;
                options.autoviv_exptime.is_none()
                    && options.exptime.is_none()
                    && options.recache_secs.is_none()
                    && options.lease.is_none()
            }
            meta::Command::NoOp => true,
            _ => false,
        },
        Request::Version => true,
        _ => false,
    }
}

/// True if a binary request may come by UDP.
pub(crate) fn serves_binary(command: &Command<'_>) -> bool {
    match command {
        Command::Get { exptime, .. } => exptime.is_none(),
        Command::NoOp | Command::Version => true,
        _ => false,
    }
}
