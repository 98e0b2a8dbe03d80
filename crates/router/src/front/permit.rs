//! Refuses requests without the required right of the client's user. [`access::Needs`] lists the
//! right for each. Keys that this program answers need the right to administer.

use access::{Needs, Permission};
use net::Input;
use proto::Error;
use proto::binary::{self, Status};
use proto::text::{GetLine, Parsed, Request};

use super::login::Client;
use super::text::ADMIN_PREFIX;
use super::{Front, Session, Step};
use crate::logins::Count;

impl Client {
    /// Returns true if the user may not request this key of a retrieval line.
    pub(super) fn forbids_key(&self, line: &GetLine, key: &[u8]) -> bool {
        let changes = line.exptime.is_some() || line.with_lease;
        let permission = if changes { Permission::ReadWrite } else { Permission::Read };
        self.login.lacks(if key.starts_with(ADMIN_PREFIX) {
            Needs::Admin
        } else {
            Needs::Key(permission, key)
        })
    }
}

/// The rights that a packet needs.
fn packet_needs<'b>(command: &binary::Command<'b>) -> Needs<'b> {
    match *command {
        binary::Command::Get { key, .. } if key.starts_with(ADMIN_PREFIX) => Needs::Admin,
        _ => Needs::of_binary(command),
    }
}

impl Front {
    /// Serves a line of a client that must log in, if it is a login or is refused. `None`: it is
    /// served like any other.
    pub(super) fn guard_line(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        parsed: &Parsed<'_>,
    ) -> Option<Step> {
        let client = session.client_login.as_ref()?;
        if client.login.is_missing() {
            return Some(self.line_before_login(session, input));
        }
        let Parsed::Request { request, consumed } = parsed else { return None };
        if !client.login.is_limited() {
            return None;
        }
        if let Request::Get(line) = request {
            // Its keys are checked one by one.
            input.consume(*consumed);
            return Some(self.keys(session, *line, input));
        }
        if !client.login.lacks(Needs::of_text(request)) {
            return None;
        }
        input.consume(*consumed);
        skip(session, input, request.data_bytes());
        self.count_denied();
        self.tell(session.queue, request.noreply(), Error::Permission.line());
        Some(Step::Next)
    }

    /// Serves a packet of a client that must log in, if it is a login or is refused. `None`: it is
    /// served like any other.
    pub(super) fn guard_packet(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        parsed: &binary::Parsed<'_>,
    ) -> Option<Step> {
        let client = session.client_login.as_ref()?;
        if client.login.is_missing() {
            return Some(self.packet_before_login(session, input));
        }
        let binary::Parsed::Request { request, consumed } = parsed else { return None };
        let value_bytes = match request.command {
            binary::Command::SaslList
            | binary::Command::SaslAuth { .. }
            | binary::Command::SaslStep { .. } => {
                input.consume(*consumed);
                return Some(self.sasl(session, request));
            }
            binary::Command::Store { value_len, .. }
            | binary::Command::Concat { value_len, .. } => u64::from(value_len),
            _ => 0,
        };
        if !client.login.lacks(packet_needs(&request.command)) {
            return None;
        }
        input.consume(*consumed);
        skip(session, input, value_bytes);
        self.count_denied();
        self.queues.get(session.queue).push_with(|heap| {
            binary::reply::write_error(heap, &request.header, Status::AccessDenied);
        });
        Some(Step::Next)
    }

    /// Counts a refused request.
    #[cold]
    pub(super) fn count_denied(&self) {
        if let Some(logins) = &self.shared.logins {
            logins.count(Count::Denied);
        }
    }
}

/// Drops the data block of a refused request: the available part now, and the rest as it arrives.
fn skip(session: &mut Session, input: &mut Input<'_>, data_bytes: u64) {
    let here = (input.bytes().len() as u64).min(data_bytes);
    // At most the available bytes.
    input.consume(usize::try_from(here).unwrap_or(0));
    session.swallow = data_bytes - here;
}
