//! Clients that must log in: by token in text (`-Y`), by SASL in packets (`-S`).
//!
//! ```text
//!     nobody --a login--> checked at once --------------------------------> a user
//!                     \-> Checking (by the authentication worker) -/
//!                      \-> Delayed --(REFUSAL_DELAY)--> refusal --> nobody
//! ```
//!
//! A connection is not read during its login. Without required logins, a session has no [`Client`],
//! and a request costs one check of that.

use std::sync::Arc;
use std::time::Instant;

use access::before_login::{Line, Packet, line, packet};
use access::{
    Answer, Auth, Login, MECHANISMS, Progress, REFUSAL_DELAY, ReplyFormat, Source, Ticket,
    UNAUTHENTICATED_BYTES_MAX,
};
use net::{Flow, Input, Output, Peer};
use proto::binary::{self, Command, Status, reply};

use super::{Front, Session, Step};
use crate::logins::{Count, Logins};

/// The login state of a client that must log in.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) login: Login,
    /// The generation of the users against which the login was last checked.
    generation: u64,
    source: Source,
    pending: Option<Pending>,
    /// The time for the login is over: after the one that is being checked, there is no other.
    is_time_over: bool,
}

/// A login without an answer yet.
#[derive(Debug)]
enum Pending {
    /// The authentication worker checks it, among the users of this generation.
    Checking { ticket: Arc<Ticket>, generation: u64, format: ReplyFormat, since: Instant },
    /// It is refused at this time.
    Delayed { until: Instant, answer: Vec<u8> },
}

impl Client {
    /// A new client.
    pub(super) fn new(logins: &Logins, peer: &Peer) -> Self {
        Self {
            login: Login::None,
            generation: logins.auth.generation(),
            source: Source::of(peer.remote.map(|address| address.ip())),
            pending: None,
            is_time_over: false,
        }
    }

    /// Returns true during a login.
    pub(super) const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Allows no further login while nobody is logged in.
    pub(super) fn end_time(&mut self) {
        self.is_time_over = true;
    }

    /// Checks the login again after a reload. Returns false if the client may not continue.
    #[cold]
    fn renew(&mut self, auth: &Auth, is_watching: bool) -> bool {
        self.generation = auth.generation();
        let was_in = !self.login.is_missing();
        self.login = auth.renew(&self.login);
        let is_out = was_in && self.login.is_missing();
        !(is_out || is_watching && self.login.forbids_admin())
    }
}

impl Session {
    /// True if the client may not attempt another login: the loop closes the connection.
    fn is_login_time_over(&self) -> bool {
        self.client_login.as_ref().is_some_and(|client| client.is_time_over)
    }
}

impl Front {
    /// Continues a login, and checks it again after a reload. `None`: requests may be read.
    pub(super) fn continue_login(
        &mut self,
        session: &mut Session,
        output: &mut Output<'_>,
    ) -> Option<Flow> {
        let (client, logins) = (session.client_login.as_mut()?, self.shared.logins.as_ref()?);
        if client.generation != logins.auth.generation()
            && !client.renew(&logins.auth, session.watching.is_some())
        {
            return Some(Flow::CloseNow);
        }
        match client.pending.take()? {
            Pending::Delayed { until, answer } if until <= Instant::now() => {
                self.queues.get(session.queue).push_ready(&answer);
                return None;
            }
            Pending::Checking { ticket, generation, format, since } => {
                match ticket.take(output.waker()) {
                    Some(Answer::Checked(Some(user))) => {
                        let progress = Progress::Accepted(user, generation);
                        return self.progress(session, format, since, progress);
                    }
                    Some(Answer::Busy) => {
                        return self.answer_later(session, since, format.busy());
                    }
                    Some(_) => return self.progress(session, format, since, Progress::Refused),
                    None => {
                        let pending = Pending::Checking { ticket, generation, format, since };
                        client.pending = Some(pending);
                    }
                }
            }
            delayed => client.pending = Some(delayed),
        }
        // Replies to requests from before the login leave in the meantime.
        self.queues.get(session.queue).serve(output.conn_id());
        Some(if self.drain(session, output) { Flow::Wait } else { Flow::Blocked })
    }

    /// Reads a line from a connection without a login.
    pub(super) fn line_before_login(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
    ) -> Step {
        let Some(logins) = self.shared.logins.clone().filter(|logins| logins.has_text) else {
            return Step::Stop(Flow::CloseNow);
        };
        match line(input.bytes()) {
            _ if session.is_login_time_over() => Step::Stop(Flow::NeedInput),
            Line::Incomplete => self.wait_for_login(input),
            Line::TooLong(answer) => {
                self.queues.get(session.queue).push_ready(answer);
                session.closes = true;
                Step::Next
            }
            Line::Refused(answer, consumed) => {
                input.consume(consumed);
                self.queues.get(session.queue).push_ready(answer);
                Step::Next
            }
            Line::Login { name, password, consumed } => {
                input.consume(consumed);
                let Some(client) = &session.client_login else { return Step::Next };
                let since = Instant::now();
                let progress = logins.auth.log_in(&logins.worker, client.source, name, password);
                self.begin(session, ReplyFormat::Text, since, progress)
            }
        }
    }

    /// Reads a packet from a connection without a login: some are harmless, SASL is expected, and
    /// others end the connection.
    pub(super) fn packet_before_login(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
    ) -> Step {
        if self.shared.logins.as_ref().is_none_or(|logins| !logins.has_sasl) {
            return Step::Stop(Flow::CloseNow);
        }
        match packet(input.bytes()) {
            _ if session.is_login_time_over() => Step::Stop(Flow::NeedInput),
            Packet::Incomplete => self.wait_for_login(input),
            Packet::NoPacket => {
                session.closes = true;
                Step::Next
            }
            Packet::Refused(header, status) => {
                self.queues.get(session.queue).push_with(|heap| {
                    reply::write_last_error(heap, &header, status);
                });
                session.closes = true;
                Step::Next
            }
            Packet::Request(request, consumed) => {
                input.consume(consumed);
                match request.command {
                    Command::SaslList | Command::SaslAuth { .. } | Command::SaslStep { .. } => {
                        self.sasl(session, &request)
                    }
                    _ => {
                        self.without_server(session, &request);
                        Step::Next
                    }
                }
            }
        }
    }

    /// Limits the bytes within which a login must end.
    fn wait_for_login(&self, input: &Input<'_>) -> Step {
        let is_long = input.bytes().len() > UNAUTHENTICATED_BYTES_MAX;
        Step::Stop(if is_long { Flow::CloseNow } else { Flow::NeedInput })
    }

    /// SASL, before a login or after one, which it ends.
    pub(super) fn sasl(&mut self, session: &mut Session, packet: &binary::Request<'_>) -> Step {
        let header = &packet.header;
        let logins = self.shared.logins.clone().filter(|logins| logins.has_sasl);
        let (Some(logins), Some(client)) = (logins, &mut session.client_login) else {
            self.queues.get(session.queue).push_with(|heap| {
                reply::write_error(heap, header, Status::UnknownCommand);
            });
            return Step::Next;
        };
        let since = Instant::now();
        let progress = match packet.command {
            Command::SaslAuth { mechanism, data } => {
                let (worker, source) = (&logins.worker, client.source);
                logins.auth.sasl(&mut client.login, worker, source, mechanism, data)
            }
            Command::SaslStep { data, .. } => logins.auth.sasl_step(&mut client.login, data),
            _ => {
                self.queues.get(session.queue).push_with(|heap| {
                    reply::write_value(heap, header, Status::Ok, 0, b"", MECHANISMS);
                });
                return Step::Next;
            }
        };
        if let Progress::Challenge(text) = &progress {
            self.queues.get(session.queue).push_with(|heap| {
                reply::write_value(heap, header, Status::AuthContinue, 0, b"", text);
            });
            return Step::Next;
        }
        self.begin(session, ReplyFormat::Binary(*header), since, progress)
    }

    /// Counts a login, and handles its result.
    fn begin(
        &mut self,
        session: &mut Session,
        format: ReplyFormat,
        since: Instant,
        progress: Progress,
    ) -> Step {
        if !matches!(progress, Progress::Invalid)
            && let Some(logins) = &self.shared.logins
        {
            logins.count(Count::Login);
        }
        match self.progress(session, format, since, progress) {
            Some(flow) => Step::Stop(flow),
            None => Step::Next,
        }
    }

    /// Answers the result of a login, or waits for it. `None`: the next request may be read.
    fn progress(
        &mut self,
        session: &mut Session,
        format: ReplyFormat,
        since: Instant,
        progress: Progress,
    ) -> Option<Flow> {
        let client = session.client_login.as_mut()?;
        match progress {
            Progress::Accepted(user, generation) => {
                client.login = Login::Ok(user);
                client.is_time_over = false;
                // If there was a reload in the meantime, the next turn finds it.
                client.generation = generation;
                self.queues.get(session.queue).push_with(|heap| format.accepted(heap));
                None
            }
            Progress::Checking(ticket, generation) => {
                client.login = Login::None;
                client.pending = Some(Pending::Checking { ticket, generation, format, since });
                // This tells the ticket which connection to wake.
                Some(Flow::Yield)
            }
            Progress::Invalid | Progress::Refused => {
                if let Some(logins) = &self.shared.logins {
                    logins.count(Count::LoginRefused);
                }
                session.fault(format_args!("a login was refused"));
                self.answer_later(session, since, format.refused())
            }
            // Only packets get a challenge, and `sasl` has sent it.
            Progress::Challenge(_) => Some(Flow::CloseNow),
        }
    }

    /// Ends a login without success, at the time of a refusal, so that an early answer does not
    /// speed up guessing.
    fn answer_later(
        &mut self,
        session: &mut Session,
        since: Instant,
        answer: Vec<u8>,
    ) -> Option<Flow> {
        let client = session.client_login.as_mut()?;
        client.login = Login::None;
        let queue = self.queues.get(session.queue);
        let Some(id) = queue.conn() else {
            // Without a connection to resume, the refusal is immediate.
            queue.push_ready(&answer);
            return None;
        };
        let until = since + REFUSAL_DELAY;
        client.pending = Some(Pending::Delayed { until, answer });
        self.refusals.hold(until, id);
        Some(Flow::Wait)
    }
}
