//! Logging in: by token in text (`-Y`), by SASL in binary (`-S`).
//!
//! ```text
//!     Commands, nobody logged in --a login--> checked at once --> Login::Ok
//!                                         \-> Asking (the authentication worker) -/
//!                                          \-> Delayed --(REFUSAL_DELAY)--> refusal --> Commands
//! ```
//!
//! Source: memcached's `try_read_command_asciiauth` in `proto_text.c`, `process_bin_sasl_auth` in
//! `proto_bin.c`, as the running 1.6.45 answers.

use std::sync::Arc;
use std::time::Instant;

use access::{
    Answer, Auth, Job, Login, MECHANISMS, Progress, REFUSAL_DELAY, ReplyFormat, Source, User,
};
use engine::Counter;
use net::{Flow, Output};
use proto::binary::reply as binary_reply;
use proto::binary::{self, Command, Status};
use proto::reply;

use super::context::Context;
use super::pending_reply::PendingReply;
use super::state::{Asking, Delayed, Purpose, Session, State, Step};
use crate::shared::Shared;

/// Checks a session again after a reload. False: its user may not continue.
#[cold]
pub(crate) fn renew(session: &mut Session, auth: &Auth) -> bool {
    session.generation = auth.generation();
    let was_in = !session.login.is_missing();
    session.login = auth.renew(&session.login);
    let is_watching =
        matches!(session.state, State::Watching(_) | State::Dumping(..) | State::ListingBags(_));
    let is_out = was_in && session.login.is_missing();
    !(is_out || is_watching && session.login.forbids_admin())
}

/// SASL, before a login, or after one, which it ends.
pub(crate) fn sasl(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    request: &binary::Request<'_>,
    output: &mut Output<'_>,
) -> Step {
    let header = &request.header;
    let Some(auth) = cx.shared.auth.clone().filter(|_| cx.shared.sasl_enabled) else {
        let (out, status) = (output.buf(), Status::UnknownCommand);
        return pending.write(|| binary_reply::write_error(out, header, status)).into();
    };
    let (format, since) = (ReplyFormat::Binary(*header), Instant::now());
    let progress = match request.command {
        Command::SaslAuth { mechanism, data } => {
            let (worker, source) = (&cx.shared.auth_worker, source_of(session));
            auth.sasl(&mut session.login, worker, source, mechanism, data)
        }
        Command::SaslStep { data, .. } => auth.sasl_step(&mut session.login, data),
        _ => {
            let (out, ok) = (output.buf(), Status::Ok);
            let write = || binary_reply::write_value(out, header, ok, 0, b"", MECHANISMS);
            return pending.write(write).into();
        }
    };
    if let Progress::Challenge(text) = &progress {
        let (out, status) = (output.buf(), Status::AuthContinue);
        let write = || binary_reply::write_value(out, header, status, 0, b"", text);
        return pending.write(write).into();
    }
    go_on(cx, session, pending, format, since, progress, output)
}

/// Handles a name and a password.
pub(super) fn log_in(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    format: ReplyFormat,
    name: &[u8],
    password: &[u8],
    output: &mut Output<'_>,
) -> Step {
    let since = Instant::now();
    let Some(auth) = &cx.shared.auth else { return Step::Stop(Flow::CloseNow) };
    let progress = auth.log_in(&cx.shared.auth_worker, source_of(session), name, password);
    go_on(cx, session, pending, format, since, progress, output)
}

fn source_of(session: &Session) -> Source {
    Source::of(session.peer.remote.map(|address| address.ip()))
}

/// Answers with the result of a login, or waits for it.
fn go_on(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    format: ReplyFormat,
    since: Instant,
    progress: Progress,
    output: &mut Output<'_>,
) -> Step {
    if !matches!(progress, Progress::Invalid) {
        cx.engine.count(Counter::AuthCmds);
    }
    match progress {
        Progress::Accepted(user, generation) => {
            accept(session, pending, format, user, generation, output.buf())
        }
        Progress::Checking(ticket, generation) => {
            let then = Purpose::Login(format, generation);
            session.state = State::Asking(Box::new(Asking { pending, ticket, since, then }));
            Step::Continue
        }
        Progress::Invalid | Progress::Refused => {
            refuse(cx, session, pending, format, since, output)
        }
        // Only packets are answered by a challenge, and `sasl` has done it.
        Progress::Challenge(_) => Step::Stop(Flow::CloseNow),
    }
}

fn accept(
    session: &mut Session,
    pending: PendingReply,
    format: ReplyFormat,
    user: Arc<User>,
    generation: u64,
    out: &mut Vec<u8>,
) -> Step {
    session.login = Login::Ok(user);
    session.is_login_time_over = false;
    // If there was a reload in the meantime, the next request finds it.
    session.generation = generation;
    pending.write(|| format.accepted(out)).into()
}

/// Sends the refusal later, or at once if there is no connection to return to.
fn refuse(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    format: ReplyFormat,
    since: Instant,
    output: &mut Output<'_>,
) -> Step {
    cx.engine.count(Counter::AuthErrors);
    cx.shared.log.fault(&session.peer, format_args!("a login was refused"));
    let answer = format.refused();
    answer_later(cx, session, pending, answer, since, output)
}

/// Ends a login without success, at the time of a refusal, so that a request to try again does not
/// speed up guessing.
fn answer_later(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    answer: Vec<u8>,
    since: Instant,
    output: &mut Output<'_>,
) -> Step {
    session.login = Login::None;
    match output.conn_id() {
        Some(id) => {
            let until = since + REFUSAL_DELAY;
            cx.refusals.hold(until, id);
            session.state = State::Delayed(Box::new(Delayed { pending, until, answer }));
            Step::Continue
        }
        None => pending.line(output.buf(), &answer).into(),
    }
}

/// Sends a refusal that is due.
pub(crate) fn go_on_delayed(session: &mut Session, output: &mut Output<'_>) -> Step {
    let State::Delayed(delayed) = &session.state else { return Step::Continue };
    if Instant::now() < delayed.until {
        return Step::Stop(Flow::Wait);
    }
    let State::Delayed(delayed) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    delayed.pending.line(output.buf(), &delayed.answer).into()
}

/// Continues when the authentication worker has answered.
pub(crate) fn go_on_asking(
    cx: &mut Context,
    session: &mut Session,
    output: &mut Output<'_>,
) -> Step {
    let State::Asking(asking) = &session.state else { return Step::Continue };
    let Some(answer) = asking.ticket.take(output.waker()) else {
        return Step::Stop(Flow::Wait);
    };
    let State::Asking(asking) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    let pending = asking.pending;
    match (asking.then, answer) {
        (Purpose::Login(format, generation), Answer::Checked(Some(user))) => {
            accept(session, pending, format, user, generation, output.buf())
        }
        (Purpose::Login(format, _), Answer::Busy) => {
            answer_later(cx, session, pending, format.busy(), asking.since, output)
        }
        (Purpose::Login(format, _), _) => {
            refuse(cx, session, pending, format, asking.since, output)
        }
        (Purpose::Refresh, Answer::Reloaded(Err(why))) => {
            pending.line(output.buf(), format!("ERROR {why}\r\n").as_bytes()).into()
        }
        (Purpose::Refresh, Answer::Busy) => {
            pending.line(output.buf(), b"ERROR too much is waiting\r\n").into()
        }
        (Purpose::Refresh, _) => pending.line(output.buf(), reply::OK).into(),
    }
}

/// `refresh_certs`: reads certificates, users and rights again.
pub(crate) fn refresh(
    shared: &Shared,
    session: &mut Session,
    pending: PendingReply,
    output: &mut Output<'_>,
) -> Step {
    if session.is_datagram() || !shared.can_reload {
        return pending.line(output.buf(), b"Error TLS not enabled\r\n").into();
    }
    let ticket = shared.auth_worker.ask(Source::Operator, Job::Reload);
    let (since, then) = (Instant::now(), Purpose::Refresh);
    session.state = State::Asking(Box::new(Asking { pending, ticket, since, then }));
    Step::Continue
}
