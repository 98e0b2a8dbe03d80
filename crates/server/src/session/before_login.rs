//! Requests of a connection without a login.

use access::before_login::{Line, Packet, line, packet};
use access::{ReplyFormat, UNAUTHENTICATED_BYTES_MAX};
use net::{Flow, Input, Output};
use proto::Wire;
use proto::binary::Command;
use proto::binary::reply as binary_reply;

use super::binary::{quit, version};
use super::context::Context;
use super::login;
use super::pending_reply::PendingReply;
use super::state::{Session, Step};

/// Serves a connection without a login.
pub(crate) fn serve(
    cx: &mut Context,
    session: &mut Session,
    wire: Wire,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let step = match wire {
        // The loop closes the connection.
        _ if session.is_login_time_over => Step::Stop(Flow::NeedInput),
        Wire::Text => serve_text(cx, session, input, output),
        Wire::Binary => serve_binary(cx, session, input, output),
    };
    match step {
        Step::Stop(Flow::NeedInput | Flow::Wait)
            if input.bytes().len() > UNAUTHENTICATED_BYTES_MAX =>
        {
            Step::Stop(Flow::Close)
        }
        step => step,
    }
}

fn serve_text(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    match line(input.bytes()) {
        Line::Incomplete => Step::Stop(Flow::NeedInput),
        Line::TooLong(answer) => {
            output.buf().extend_from_slice(answer);
            Step::Stop(Flow::Close)
        }
        Line::Refused(answer, consumed) => {
            input.consume(consumed);
            PendingReply::of_request().line(output.buf(), answer).into()
        }
        Line::Login { name, password, consumed } => {
            input.consume(consumed);
            let (pending, format) = (PendingReply::of_request(), ReplyFormat::Text);
            login::log_in(cx, session, pending, format, name, password, output)
        }
    }
}

/// Some packets are harmless, SASL is expected, and others end the connection.
fn serve_binary(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let (request, consumed) = match packet(input.bytes()) {
        Packet::Request(request, consumed) => (request, consumed),
        Packet::Incomplete => return Step::Stop(Flow::NeedInput),
        Packet::NoPacket => return Step::Stop(Flow::Close),
        Packet::Refused(header, status) => {
            binary_reply::write_last_error(output.buf(), &header, status);
            return Step::Stop(Flow::Close);
        }
    };
    input.consume(consumed);
    let pending = PendingReply::of_request();
    match request.command {
        Command::Version => pending.write(|| version(&request.header, output.buf())).into(),
        Command::Quit => quit(pending, &request, output),
        _ => login::sasl(cx, session, pending, &request, output),
    }
}
