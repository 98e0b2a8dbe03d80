//! `-vv`: prints clients' requests on stderr as memcached does: `<`, the connection, and the
//! command's line. Data blocks, and therefore passwords, are not shown.

use memchr::memchr;
use proto::Wire;
use proto::binary::HEADER_BYTES;

use super::state::Session;
use crate::log::Log;
use crate::shared::Shared;

/// The verbosity from which commands are printed.
const FROM: u8 = 2;

/// The longest part of a line that is printed, in bytes.
const SHOWN_BYTES_MAX: usize = 1024;

/// True if commands are printed. Checked once per turn.
pub(super) fn is_on(shared: &Shared) -> bool {
    shared.verbosity() >= FROM
}

/// Prints the command at the start of `bytes`, once it is whole.
#[cold]
pub(super) fn log_command(log: &Log, session: &Session, wire: Wire, bytes: &[u8]) {
    let id = session.id;
    match wire {
        Wire::Text => {
            let Some(end) = memchr(b'\n', bytes) else { return };
            let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
            let line = &line[..line.len().min(SHOWN_BYTES_MAX)];
            log.command(format_args!("<{id} {}", line.escape_ascii()));
        }
        Wire::Binary => {
            let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return };
            let extras = usize::from(header[4]);
            let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let Some(key) =
                bytes.get(HEADER_BYTES + extras..).and_then(|rest| rest.get(..key_bytes))
            else {
                return;
            };
            let key = key[..key.len().min(SHOWN_BYTES_MAX)].escape_ascii();
            log.command(format_args!("<{id} binary {:#04x} {key}", header[1]));
        }
    }
}
