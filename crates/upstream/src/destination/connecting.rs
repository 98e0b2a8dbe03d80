//! Making a connection: the sockets that try, the opening of the chosen one, and the probes of a
//! knocked-out server.

use std::time::Duration;

use super::{Destination, End, Link};
use crate::counters::{add, set};
use crate::guard::Guard;
use crate::micros::micros;
use crate::request::Request;
use crate::sink::PROBE;
use crate::sink::Sink;
use crate::system::Socket;
use proto::{Command, Failure};
use rustix::io::Errno;

/// Time that a login may take in addition to the connect timeout. A holdall server refuses a wrong
/// login after one second.
pub const LOGIN_PATIENCE: Duration = Duration::from_secs(2);

impl Destination {
    pub(crate) fn socket(&self) -> Option<&Socket> {
        match &self.link {
            Link::Closed => None,
            Link::Connecting(socket) | Link::Up(socket) => Some(socket),
        }
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.link, Link::Connecting(_))
    }

    /// Returns true if requests cannot be sent yet.
    pub(super) fn is_opening(&self) -> bool {
        self.is_connecting() || self.guard.as_ref().is_some_and(|guard| !guard.is_open())
    }

    /// The maximum time until requests can be sent. Servers report a wrong login late on purpose,
    /// and waiting requests should see that error.
    pub(super) fn time_to_open(&self) -> Duration {
        let is_logging_in = matches!(self.link, Link::Up(_)) && self.settings.login.is_some();
        let patience = if is_logging_in { LOGIN_PATIENCE } else { Duration::ZERO };
        self.settings.connect_timeout + patience
    }

    /// Starts to connect, unless there is a connection or an attempt.
    #[inline]
    pub(super) fn connect(&mut self, now_us: u64) -> Result<(), Failure> {
        if matches!(self.link, Link::Closed) { self.begin_connecting(now_us) } else { Ok(()) }
    }

    #[cold]
    fn begin_connecting(&mut self, now_us: u64) -> Result<(), Failure> {
        let tls = self.settings.tls.as_ref().map(|tls| (tls, self.settings.server_name.as_str()));
        let login = self.settings.login.as_ref().map(|login| (login, self.settings.protocol));
        let guard = Guard::new(tls, login);
        let socket = Socket::connect(&self.address).map_err(failure_of);
        let made =
            socket.and_then(|socket| Ok((socket, guard.map_err(|_| Failure::ConnectError)?)));
        let (socket, guard) = match made {
            Ok(made) => made,
            Err(failure) => {
                add(&self.counters.failed, 1);
                if failure != Failure::LocalError {
                    self.unreachable(failure.sentence());
                    self.plan_probe(now_us);
                    self.report_failure(now_us);
                }
                return Err(failure);
            }
        };
        self.guard = guard;
        if self.settings.tls.is_some() {
            self.pipeline.mark_ends();
        }
        self.connect_began_us = now_us;
        self.dial(socket, now_us);
        Ok(())
    }

    fn dial(&mut self, socket: Socket, now_us: u64) {
        self.last_generation = self.last_generation.wrapping_add(1);
        (self.link, self.generation) = (Link::Connecting(socket), self.last_generation);
        self.plan_dial(now_us);
        self.polls_output = true;
    }

    fn plan_dial(&mut self, now_us: u64) {
        self.dial_us = now_us.saturating_add(micros(self.settings.probe_initial));
    }

    /// Starts one more socket; the first to succeed is taken. The system resends the first packet
    /// of a connection only after a second, so without this a recovered server would be found too
    /// late. The first socket continues, since a long path may take longer than the time between
    /// two tries; the others replace each other.
    pub(super) fn dial_again(&mut self, now_us: u64) {
        // Without a descriptor, the current attempts continue.
        self.plan_dial(now_us);
        if let Ok(socket) = Socket::connect(&self.address)
            && let Link::Connecting(before) = std::mem::replace(&mut self.link, Link::Closed)
        {
            let before = (before, self.generation);
            self.first.get_or_insert(before);
            self.dial(socket, now_us);
        }
    }

    /// True if an event is of a current socket, which is then taken if another was to replace it.
    pub(crate) fn is_told(&mut self, told: impl Fn(u32) -> bool) -> bool {
        if let Some((socket, generation)) = self.first.take_if(|(_, first)| told(*first)) {
            (self.link, self.generation) = (Link::Connecting(socket), generation);
            return true;
        }
        told(self.generation) && self.socket().is_some()
    }

    pub(super) fn on_connected(&mut self, now_us: u64, sink: &mut dyn Sink) {
        let Link::Connecting(socket) = std::mem::replace(&mut self.link, Link::Closed) else {
            return;
        };
        self.first = None;
        match socket.connected() {
            Ok(()) => {
                self.link = Link::Up(socket);
                if self.guard.is_none() {
                    self.opened(now_us);
                }
            }
            Err(errno) => {
                drop(socket);
                self.close(End::Connect(failure_of(errno)), now_us, sink);
            }
        }
    }

    /// The end of a connection whose socket reports this error.
    pub(super) fn end_by(&self, errno: Errno) -> End<'static> {
        if self.is_opening() && lacks_resources(errno) {
            End::Connect(Failure::LocalError)
        } else {
            End::Gone
        }
    }

    /// Records that it could not be connected to, for this reason, which lies outside this host.
    pub(super) fn unreachable(&self, why: &str) {
        if self.settings.knocks_out {
            self.health.unreachable(why);
        }
    }

    /// Opens the connection for requests. The check whether the server is back comes first, so that
    /// it has its full time.
    pub(super) fn opened(&mut self, now_us: u64) {
        self.opened_us = now_us;
        if self.probe.is_some() {
            self.ask_probe(now_us);
        }
        if std::mem::take(&mut self.connect_retries) > 0 {
            add(&self.counters.connects_retried, 1);
        }
        set(&self.counters.connected, 1);
        add(&self.counters.connects, 1);
    }

    /// True if more sockets try without probes: the server is not knocked out.
    pub(super) fn dials_by_itself(&self) -> bool {
        self.is_connecting() && !self.health.is_tko()
    }

    /// Retries a connection that was not made in time, as often as the settings allow; otherwise
    /// returns the reason why its requests fail.
    pub(super) fn connect_again(&mut self, now_us: u64) -> Result<(), Failure> {
        if self.connect_retries >= self.settings.connect_retries {
            self.connect_retries = 0;
            return Err(Failure::ConnectTimeout);
        }
        self.connect_retries += 1;
        add(&self.counters.connect_retries, 1);
        (self.link, self.guard, self.first) = (Link::Closed, None, None);
        self.connect(now_us).inspect_err(|_| self.connect_retries = 0)
    }

    /// Plans a later probe of a knocked-out server, by one worker.
    pub(super) fn plan_probe(&mut self, now_us: u64) {
        if self.probe.is_none() && self.health.take_probing(self.worker.number) {
            self.probe =
                Some((now_us + micros(self.settings.probe_initial), self.settings.probe_initial));
        }
    }

    pub(super) fn send_probe(&mut self, waited: Duration, now_us: u64) {
        if !self.health.is_tko() {
            self.probe = None;
            return;
        }
        let wait = (waited * 3 / 2).min(self.settings.probe_max);
        // Up to a tenth later, so that the probes of many programs do not coincide.
        let jitter = micros(wait) / 10 * (now_us % 16) / 16;
        self.probe = Some((now_us + micros(wait) + jitter, wait));
        if self.is_connecting() {
            self.dial_again(now_us);
        } else if self.connect(now_us).is_ok() && !self.is_opening() {
            self.ask_probe(now_us);
            self.is_dirty = true;
        }
    }

    /// Probes whether the server is back, unless outstanding requests will show that.
    fn ask_probe(&mut self, now_us: u64) {
        if self.pipeline.is_empty() {
            self.pipeline.ask(&Request::new(Command::Version, b""), PROBE, 0, now_us);
        }
    }
}

/// The failure of requests whose connection cannot be made. A lack on this host says nothing about
/// the server.
fn failure_of(errno: Errno) -> Failure {
    if lacks_resources(errno) { Failure::LocalError } else { Failure::ConnectError }
}

/// Returns true if this process or host lacks descriptors or memory.
fn lacks_resources(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
}
