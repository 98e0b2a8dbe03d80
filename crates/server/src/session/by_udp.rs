//! Requests that are served by UDP: retrieval and `version`, nothing that changes anything.
//!
//! A datagram's source can be forged, so whoever can send one could store or delete in another's
//! name. `mg` is among the retrieval commands only without the flags by which it stores, touches or
//! claims; a stale item it shows without taking the right to renew it.
//!
//! A line that is no request is not answered: it may be the answer of another server, whose sender
//! would answer the error in turn, for ever.

use proto::binary::Command;
use proto::meta;
use proto::text::Request;

/// The answer in text to everything else; what follows it in the datagram is dropped.
pub(crate) const REFUSED: &[u8] =
    b"CLIENT_ERROR only get, gets, mg, mn and version are served by UDP\r\n";

/// Whether a text or meta request may come by UDP.
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

/// Whether a binary request may come by UDP.
pub(crate) fn serves_binary(command: &Command<'_>) -> bool {
    match command {
        Command::Get { exptime, .. } => exptime.is_none(),
        Command::NoOp | Command::Version => true,
        _ => false,
    }
}
