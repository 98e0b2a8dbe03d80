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

use engine::Counter;
use net::{Flow, Output};
use proto::binary::reply as binary_reply;
use proto::binary::{self, Command, Status};
use proto::reply;

use super::context::Context;
use super::pending_reply::{PendingReply, Replied};
use super::state::{Asked, Asking, Delayed, Purpose, Session, State, Step};
use crate::auth::{
    self, Answer, AuthTable, Check, Job, Login, Mechanism, REFUSAL_DELAY, Source, User, scram,
};
use crate::shared::Shared;

/// The reply to a login whose password was not looked at.
const TRY_AGAIN: &[u8] = b"SERVER_ERROR too many logins are waiting, try again\r\n";

impl Asked {
    fn accepted(self, pending: PendingReply, out: &mut Vec<u8>) -> Replied {
        match self {
            Self::Binary(header) => pending.write(|| {
                binary_reply::write_value(out, &header, Status::Ok, 0, b"", b"Authenticated");
            }),
            Self::Text => pending.line(out, reply::STORED),
        }
    }

    fn refused(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Binary(header) => {
                binary_reply::write_error(&mut out, &header, Status::AuthFailure);
            }
            Self::Text => out.extend_from_slice(reply::AUTH_FAILURE),
        }
        out
    }

    /// The password was not looked at.
    fn busy(self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Binary(header) => binary_reply::write_error(&mut out, &header, Status::Busy),
            Self::Text => out.extend_from_slice(TRY_AGAIN),
        }
        out
    }
}

/// Looks at a session again after a reload. False: whoever it was may not go on.
#[cold]
pub(crate) fn renew(session: &mut Session, auth: &auth::Auth) -> bool {
    session.generation = auth.generation();
    let was_in = !session.login.is_missing();
    session.login = auth.renew(&session.login);
    let is_watching = matches!(session.state, State::Watching(_) | State::Dumping(..));
    let is_out = was_in && session.login.is_missing();
    !(is_out || is_watching && session.login.forbids_admin())
}

/// SASL, before a login or after one, which it ends.
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
    let asked = Asked::Binary(*header);
    match request.command {
        Command::SaslAuth { mechanism, data } => {
            session.login = Login::None;
            match Mechanism::of(mechanism) {
                Some(Mechanism::Plain) => match auth::plain(data) {
                    Some((name, password)) => {
                        log_in(cx, session, pending, asked, name, password, output)
                    }
                    None => refuse(cx, session, pending, asked, Instant::now(), output),
                },
                Some(Mechanism::Scram(exchange)) => {
                    session.login = Login::InProgress(exchange);
                    scram(cx, session, pending, &auth.auth_table(), asked, data, output)
                }
                None => refuse(cx, session, pending, asked, Instant::now(), output),
            }
        }
        Command::SaslStep { data, .. } => {
            scram(cx, session, pending, &auth.auth_table(), asked, data, output)
        }
        _ => {
            let (out, list) = (output.buf(), auth::MECHANISMS);
            let ok = Status::Ok;
            pending.write(|| binary_reply::write_value(out, header, ok, 0, b"", list)).into()
        }
    }
}

fn scram(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    auth_table: &AuthTable,
    asked: Asked,
    message: &[u8],
    output: &mut Output<'_>,
) -> Step {
    let Login::InProgress(mut exchange) = std::mem::take(&mut session.login) else {
        return refuse(cx, session, pending, asked, Instant::now(), output);
    };
    match auth_table.step(&mut exchange, message) {
        scram::Outcome::Challenge(text) => {
            session.login = Login::InProgress(exchange);
            let Asked::Binary(header) = asked else {
                return Step::Stop(Flow::CloseNow);
            };
            let (out, status) = (output.buf(), Status::AuthContinue);
            let write = || binary_reply::write_value(out, &header, status, 0, b"", &text);
            pending.write(write).into()
        }
        scram::Outcome::Accepted(user) => {
            cx.engine.count(Counter::AuthCmds);
            accept(session, pending, asked, user, auth_table.generation(), output.buf())
        }
        scram::Outcome::Refused => {
            cx.engine.count(Counter::AuthCmds);
            refuse(cx, session, pending, asked, Instant::now(), output)
        }
    }
}

/// A name and a password were given.
pub(super) fn log_in(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    asked: Asked,
    name: &[u8],
    password: &[u8],
    output: &mut Output<'_>,
) -> Step {
    cx.engine.count(Counter::AuthCmds);
    let since = Instant::now();
    let Some(auth) = &cx.shared.auth else { return Step::Stop(Flow::CloseNow) };
    let auth_table = auth.auth_table();
    let generation = auth_table.generation();
    match auth_table.check(name, password) {
        Check::Done(Some(user)) => accept(session, pending, asked, user, generation, output.buf()),
        Check::Done(None) => refuse(cx, session, pending, asked, since, output),
        Check::Slow => {
            let (name, password) = (name.to_vec(), password.to_vec());
            let source = Source::of(session.peer.remote.map(|address| address.ip()));
            let job = Job::Check { auth_table, name, password };
            let ticket = cx.shared.auth_worker.ask(source, job);
            let then = Purpose::Login(asked, generation);
            session.state = State::Asking(Box::new(Asking { pending, ticket, since, then }));
            Step::Continue
        }
    }
}

fn accept(
    session: &mut Session,
    pending: PendingReply,
    asked: Asked,
    user: Arc<User>,
    generation: u64,
    out: &mut Vec<u8>,
) -> Step {
    session.login = Login::Ok(user);
    // Should there have been a reload meanwhile, the next request finds it.
    session.generation = generation;
    asked.accepted(pending, out).into()
}

/// The refusal comes later. Without a connection to come back to, it comes at once.
fn refuse(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    asked: Asked,
    since: Instant,
    output: &mut Output<'_>,
) -> Step {
    cx.engine.count(Counter::AuthErrors);
    cx.shared.log.detail(format_args!("a login from {} was refused", session.peer));
    let answer = asked.refused();
    answer_later(cx, session, pending, answer, since, output)
}

/// Ends a login without success, at the time of a refusal: guessing gets no faster by being told
/// to try again.
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

/// Sends a refusal whose time has come.
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

/// Goes on when the authentication worker has answered.
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
        (Purpose::Login(asked, generation), Answer::Checked(Some(user))) => {
            accept(session, pending, asked, user, generation, output.buf())
        }
        (Purpose::Login(asked, _), Answer::Busy) => {
            answer_later(cx, session, pending, asked.busy(), asking.since, output)
        }
        (Purpose::Login(asked, _), _) => refuse(cx, session, pending, asked, asking.since, output),
        (Purpose::Refresh, Answer::Reloaded(Err(why))) => {
            pending.line(output.buf(), format!("ERROR {why}\r\n").as_bytes()).into()
        }
        (Purpose::Refresh, Answer::Busy) => {
            pending.line(output.buf(), b"ERROR too much is waiting\r\n").into()
        }
        (Purpose::Refresh, _) => pending.line(output.buf(), reply::OK).into(),
    }
}

/// `refresh_certs`: certificates, users and rights are read again.
pub(crate) fn refresh(
    shared: &Shared,
    session: &mut Session,
    pending: PendingReply,
    output: &mut Output<'_>,
) -> Step {
    if session.is_datagram() || !shared.can_reload {
        return pending.line(output.buf(), b"ERROR TLS not enabled\r\n").into();
    }
    let ticket = shared.auth_worker.ask(Source::Operator, Job::Reload);
    let (since, then) = (Instant::now(), Purpose::Refresh);
    session.state = State::Asking(Box::new(Asking { pending, ticket, since, then }));
    Step::Continue
}
