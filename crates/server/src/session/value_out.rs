//! Sends large values straight from the store's memory, for as long as the socket needs.
//!
//! A value in one chunk is copied after its header, inside the read section. A chained one is
//! pinned, and its pieces are written from their place; the state is an offset.

use std::io::IoSlice;

use access::Needs;
use net::{Flow, Output};
use store::{Item, Pin};

use super::context::Context;
use super::large_values::Need;
use super::state::{Sending, Session, State, Step, Then};

/// Bytes of large values after which the other connections get their turn.
const TURN_BYTES: usize = 1 << 20;

/// Pieces handed to the socket at once.
const SLICES: usize = 16;

/// The bytes after a large value.
pub(crate) const LINE_END: &[u8] = b"\r\n";

/// The way in which a value is sent.
pub(crate) enum Outgoing<'s> {
    /// It is copied.
    Inline(&'s [u8]),
    /// It is sent from its place.
    Pinned(Pin),
}

/// The way to send `item`'s value. Inside the section.
#[inline]
pub(crate) fn outgoing<'s>(item: &Item<'s>) -> Outgoing<'s> {
    match item.inline_value() {
        Some(value) => Outgoing::Inline(value),
        None => item.pin().map_or(Outgoing::Inline(b""), Outgoing::Pinned),
    }
}

/// True if the key's value has to wait for its turn to be sent; the session then returns
/// [`Flow::Wait`] and checks again. Also false when it has waited for long enough: a value refused
/// then gets its error. A client without the right to it learns nothing by waiting: it does not
/// wait.
#[inline]
pub(crate) fn waits_to_send<'k>(
    cx: &mut Context,
    session: &mut Session,
    key: &[u8],
    needs: impl FnOnce() -> Needs<'k>,
    output: &Output<'_>,
) -> bool {
    let waits = cx.large_values.is_tight()
        && !session.login.lacks(needs())
        && waits_for_others(cx, session, key, output);
    if !waits && session.waits_until.is_some() {
        end_wait(cx, session);
    }
    waits
}

/// Ends a wait in any other way than by its turn: another value may wait as long.
#[cold]
fn end_wait(cx: &Context, session: &mut Session) {
    session.waits_until = None;
    cx.large_values.with(|account| account.forget_waiting(session.id));
}

fn waits_for_others(
    cx: &mut Context,
    session: &mut Session,
    key: &[u8],
    output: &Output<'_>,
) -> bool {
    let Some(conn) = output.conn_id() else { return false };
    let key = cx.engine.key(key);
    let section = cx.engine.section();
    let found = section.find(key.hash, key.bytes);
    let large = found.filter(|item| item.inline_value().is_none());
    let Some(pin) = large.and_then(|item| item.pin()) else { return false };
    drop(section);
    let need = Need::Send(pin.value_len());
    cx.large_values.with(|account| {
        // One that is being sent costs nothing more.
        !account.is_sent(address(&pin))
            && account.must_wait(session.id, conn, need, cx.now, &mut session.waits_until)
    })
}

/// Accounts for the value of `pin`, which is sent to this session next. False: there is no room.
pub(super) fn begin(cx: &Context, id: u64, pin: &Pin) -> bool {
    cx.large_values.with(|account| account.begin_sending(id, address(pin), pin.value_len(), cx.now))
}

/// Identifies a pinned value: no other value starts there while the pin lives.
fn address(pin: &Pin) -> usize {
    pin.bytes_at(0).as_ptr().addr()
}

/// Sends `pin`'s value from the next step on; its header has been written.
pub(crate) fn start(session: &mut Session, pin: Pin, then: Then) {
    session.state = State::Sending(Box::new(Sending { pin, offset: 0, then }));
}

/// Sends as much as the socket takes.
pub(crate) fn go_on(cx: &mut Context, session: &mut Session, output: &mut Output<'_>) -> Step {
    let State::Sending(sending) = &mut session.state else { return Step::Continue };
    if !cx.large_values.with(|account| account.go_on(session.id, output.conn_id())) {
        return Step::Stop(Flow::CloseNow);
    }
    // A value too large for a datagram is not copied: its reply becomes an error.
    let most = session.reply_bytes_max;
    let turn_end = sending.offset.saturating_add(TURN_BYTES);
    while sending.offset < sending.pin.value_len() {
        if output.buf().len() > most {
            return Step::Stop(Flow::CloseNow);
        }
        if sending.offset >= turn_end {
            return Step::Stop(Flow::Yield);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (mut count, mut wanted) = (0, 0);
        while count < SLICES && wanted <= most {
            let piece = sending.pin.bytes_at(sending.offset + wanted);
            if piece.is_empty() {
                break;
            }
            slices[count] = IoSlice::new(piece);
            (count, wanted) = (count + 1, wanted + piece.len());
        }
        let Ok(taken) = output.write_through(&slices[..count]) else {
            return Step::Stop(Flow::CloseNow);
        };
        sending.offset += taken;
        if taken > 0 {
            cx.large_values.with(|account| account.moved(session.id, cx.now));
        }
        if taken < wanted {
            return Step::Stop(Flow::Blocked);
        }
    }
    cx.large_values.with(|account| account.end(session.id));
    let State::Sending(sending) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    match sending.then {
        Then::End(pending, tail) => pending.line(output.buf(), tail).into(),
        Then::Keys(retrieval) => {
            output.buf().extend_from_slice(LINE_END);
            session.state = State::Getting(retrieval);
            Step::Continue
        }
    }
}
