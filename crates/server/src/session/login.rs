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
use memchr::memchr;
use net::{Flow, Input, Output};
use proto::binary::reply as binary_reply;
use proto::binary::{self, Command, Parsed, Status, Then};
use proto::text::Words;
use proto::{Wire, number, reply};

use super::Worker;
use super::binary::quit;
use super::pending_reply::{PendingReply, Replied};
use super::state::{Asked, Asking, Delayed, Purpose, Session, State, Step};
use crate::auth::{
    self, Answer, AuthTable, Check, Job, Login, Mechanism, REFUSAL_DELAY,
    UNAUTHENTICATED_BYTES_MAX, User, scram,
};

/// The longest line of a login, in bytes.
const LINE_BYTES_MAX: usize = 2048;

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
}

impl Worker {
    /// Looks at a session again after a reload. False: whoever it was may not go on.
    #[cold]
    pub(crate) fn renew_login(&self, session: &mut Session, auth: &auth::Auth) -> bool {
        session.generation = auth.generation();
        let was_in = !session.login.is_missing();
        session.login = auth.renew(&session.login);
        let is_watching = matches!(session.state, State::Watching(_) | State::Dumping(..));
        let is_out = was_in && session.login.is_missing();
        !(is_out || is_watching && session.login.forbids_admin())
    }

    /// Serves a connection on which nobody is logged in.
    pub(crate) fn before_login(
        &mut self,
        session: &mut Session,
        wire: Wire,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let step = match wire {
            Wire::Text => self.text_before_login(session, input, output),
            Wire::Binary => self.binary_before_login(session, input, output),
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

    /// A line before the login: `set <any> <any> <any> <bytes>`, with `user password` for its data,
    /// is one.
    fn text_before_login(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let bytes = input.bytes();
        let Some(newline) = memchr(b'\n', bytes.get(..=LINE_BYTES_MAX).unwrap_or(bytes)) else {
            let is_long = bytes.len() > LINE_BYTES_MAX;
            return Step::Stop(if is_long { Flow::Close } else { Flow::NeedInput });
        };
        let (line, rest) = (&bytes[..newline], &bytes[newline + 1..]);
        let Some(len) = token_len(line.strip_suffix(b"\r").unwrap_or(line)) else {
            input.consume(newline + 1);
            return PendingReply::of_request().line(output.buf(), reply::UNAUTHENTICATED).into();
        };
        let data_len = len as usize + reply::CRLF.len();
        if newline + data_len >= UNAUTHENTICATED_BYTES_MAX {
            output.buf().extend_from_slice(reply::AUTH_TOKEN_TOO_LONG);
            return Step::Stop(Flow::Close);
        }
        let Some(data) = rest.get(..data_len) else { return Step::Stop(Flow::NeedInput) };
        input.consume(newline + 1 + data_len);
        let pending = PendingReply::of_request();
        let Some(token) = data.strip_suffix(reply::CRLF) else {
            return pending.line(output.buf(), reply::AUTH_BAD_END).into();
        };
        let mut words = Words::new(token);
        let (Some(name), Some(password)) = (words.next(), words.next()) else {
            return pending.line(output.buf(), reply::AUTH_BAD_TOKEN).into();
        };
        self.log_in(session, pending, Asked::Text, name, password, output)
    }

    /// A packet before the login: some are harmless, SASL is what is waited for, and others end the
    /// connection.
    fn binary_before_login(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let (request, consumed) = match binary::parse(input.bytes()) {
            Parsed::Request { request, consumed } => (request, consumed),
            Parsed::Incomplete => return Step::Stop(Flow::NeedInput),
            Parsed::BadMagic => return Step::Stop(Flow::Close),
            Parsed::Bad(bad) => {
                let status = match bad.then {
                    Then::Close => bad.status,
                    Then::Swallow(_) => Status::AuthFailure,
                };
                binary_reply::write_error(output.buf(), &bad.header, status);
                return Step::Stop(Flow::Close);
            }
        };
        input.consume(consumed);
        let pending = PendingReply::of_request();
        match request.command {
            Command::SaslList | Command::SaslAuth { .. } | Command::SaslStep { .. } => {
                self.sasl(session, pending, &request, output)
            }
            Command::Version => {
                pending.write(|| self.binary_version(&request.header, output.buf())).into()
            }
            Command::Quit => quit(pending, &request, output),
            _ => {
                binary_reply::write_error(output.buf(), &request.header, Status::AuthFailure);
                Step::Stop(Flow::Close)
            }
        }
    }

    /// SASL, before a login or after one, which it ends.
    pub(crate) fn sasl(
        &mut self,
        session: &mut Session,
        pending: PendingReply,
        request: &binary::Request<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let header = &request.header;
        let Some(auth) = self.shared.auth.clone().filter(|_| self.shared.sasl_enabled) else {
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
                            self.log_in(session, pending, asked, name, password, output)
                        }
                        None => self.refuse_login(session, pending, asked, Instant::now(), output),
                    },
                    Some(Mechanism::Scram(exchange)) => {
                        session.login = Login::InProgress(exchange);
                        self.scram(session, pending, &auth.auth_table(), asked, data, output)
                    }
                    None => self.refuse_login(session, pending, asked, Instant::now(), output),
                }
            }
            Command::SaslStep { data, .. } => {
                self.scram(session, pending, &auth.auth_table(), asked, data, output)
            }
            _ => {
                let (out, list) = (output.buf(), auth::MECHANISMS);
                let ok = Status::Ok;
                pending.write(|| binary_reply::write_value(out, header, ok, 0, b"", list)).into()
            }
        }
    }

    fn scram(
        &mut self,
        session: &mut Session,
        pending: PendingReply,
        auth_table: &AuthTable,
        asked: Asked,
        message: &[u8],
        output: &mut Output<'_>,
    ) -> Step {
        let Login::InProgress(mut exchange) = std::mem::take(&mut session.login) else {
            return self.refuse_login(session, pending, asked, Instant::now(), output);
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
                self.engine.count(Counter::AuthCmds);
                self.accept(session, pending, asked, user, auth_table.generation(), output.buf())
            }
            scram::Outcome::Refused => {
                self.engine.count(Counter::AuthCmds);
                self.refuse_login(session, pending, asked, Instant::now(), output)
            }
        }
    }

    /// A name and a password were given.
    fn log_in(
        &mut self,
        session: &mut Session,
        pending: PendingReply,
        asked: Asked,
        name: &[u8],
        password: &[u8],
        output: &mut Output<'_>,
    ) -> Step {
        self.engine.count(Counter::AuthCmds);
        let since = Instant::now();
        let Some(auth) = &self.shared.auth else { return Step::Stop(Flow::CloseNow) };
        let auth_table = auth.auth_table();
        let generation = auth_table.generation();
        match auth_table.check(name, password) {
            Check::Done(Some(user)) => {
                self.accept(session, pending, asked, user, generation, output.buf())
            }
            Check::Done(None) => self.refuse_login(session, pending, asked, since, output),
            Check::Slow => {
                let (name, password) = (name.to_vec(), password.to_vec());
                match self.shared.auth_worker.ask(Job::Check { auth_table, name, password }) {
                    Some(ticket) => {
                        let then = Purpose::Login(asked, generation);
                        let asking = Asking { pending, ticket, since, then };
                        session.state = State::Asking(Box::new(asking));
                        Step::Continue
                    }
                    None => self.refuse_login(session, pending, asked, since, output),
                }
            }
        }
    }

    fn accept(
        &self,
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
    fn refuse_login(
        &mut self,
        session: &mut Session,
        pending: PendingReply,
        asked: Asked,
        since: Instant,
        output: &mut Output<'_>,
    ) -> Step {
        self.engine.count(Counter::AuthErrors);
        session.login = Login::None;
        self.shared.log.detail(format_args!("a login from {} was refused", session.peer));
        let answer = asked.refused();
        match output.conn_id() {
            Some(id) => {
                let until = since + REFUSAL_DELAY;
                self.held.push_back((until, id));
                session.state = State::Delayed(Box::new(Delayed { pending, until, answer }));
                Step::Continue
            }
            None => pending.line(output.buf(), &answer).into(),
        }
    }

    /// Sends a refusal whose time has come.
    pub(crate) fn go_on_delayed(&self, session: &mut Session, output: &mut Output<'_>) -> Step {
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
    pub(crate) fn go_on_asking(&mut self, session: &mut Session, output: &mut Output<'_>) -> Step {
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
                self.accept(session, pending, asked, user, generation, output.buf())
            }
            (Purpose::Login(asked, _), _) => {
                self.refuse_login(session, pending, asked, asking.since, output)
            }
            (Purpose::Refresh, Answer::Reloaded(Err(why))) => {
                pending.line(output.buf(), format!("ERROR {why}\r\n").as_bytes()).into()
            }
            (Purpose::Refresh, _) => pending.line(output.buf(), reply::OK).into(),
        }
    }

    /// `refresh_certs`: certificates, users and rights are read again.
    pub(crate) fn refresh(
        &self,
        session: &mut Session,
        pending: PendingReply,
        output: &mut Output<'_>,
    ) -> Step {
        if session.is_datagram() || !self.shared.can_reload {
            return pending.line(output.buf(), b"ERROR TLS not enabled\r\n").into();
        }
        let Some(ticket) = self.shared.auth_worker.ask(Job::Reload) else {
            return pending.line(output.buf(), b"ERROR too much is waiting\r\n").into();
        };
        let (since, then) = (Instant::now(), Purpose::Refresh);
        session.state = State::Asking(Box::new(Asking { pending, ticket, since, then }));
        Step::Continue
    }
}

/// The length that a line announces for a login token, if it is one.
fn token_len(line: &[u8]) -> Option<u32> {
    let mut words = Words::new(line);
    if words.next() != Some(b"set") {
        return None;
    }
    words.nth(3).and_then(number::parse_u32)
}
