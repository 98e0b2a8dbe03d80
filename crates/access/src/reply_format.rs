//! The bytes that answer a login.

use proto::binary::reply as binary_reply;
use proto::binary::{Header, Status};
use proto::reply;

/// The reply to a login whose password was not checked.
const TRY_AGAIN: &[u8] = b"SERVER_ERROR too many logins are waiting, try again\r\n";

/// The protocol of a login, also used for the answer.
#[derive(Clone, Copy, Debug)]
pub enum ReplyFormat {
    /// SASL in packets; the header is that of the packet to answer.
    Binary(Header),
    /// A token in text.
    Text,
}

impl ReplyFormat {
    /// Appends the reply to an accepted login.
    pub fn accepted(self, out: &mut Vec<u8>) {
        match self {
            Self::Binary(header) => {
                binary_reply::write_value(out, &header, Status::Ok, 0, b"", b"Authenticated");
            }
            Self::Text => out.extend_from_slice(reply::STORED),
        }
    }

    /// The reply to a refused login.
    #[must_use]
    pub fn refused(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Binary(header) => {
                binary_reply::write_error(&mut out, &header, Status::AuthFailure);
            }
            Self::Text => out.extend_from_slice(reply::AUTH_FAILURE),
        }
        out
    }

    /// The reply to a login whose password was not checked.
    #[must_use]
    pub fn busy(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Binary(header) => binary_reply::write_error(&mut out, &header, Status::Busy),
            Self::Text => out.extend_from_slice(TRY_AGAIN),
        }
        out
    }
}
