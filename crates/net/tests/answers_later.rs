//! A service whose answers come from elsewhere: connections wait for them, and outlive the end of
//! their input.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{CloseReason, Config, ConnId, Flow, Input, Listen, Output, Peer, Service, Unbudgeted};
use rustix::event::EventfdFlags;

/// Answers `later\n` when its own descriptor has become readable, `timed\n` at a deadline, and
/// reads nothing in the meantime.
struct Later {
    eventfd: OwnedFd,
    waiting: Option<ConnId>,
    answered: bool,
    deadline: Option<Instant>,
}

#[derive(Default)]
struct Session {
    owed: bool,
}

impl Service for Later {
    type Session = Session;

    fn begin_turn(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.answered = true;
        }
    }

    fn before_park(&mut self) {}

    fn open(&mut self, _peer: &Peer) -> Session {
        Session::default()
    }

    fn serve(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Flow {
        if session.owed {
            if !self.answered {
                return Flow::Wait;
            }
            (session.owed, self.answered) = (false, false);
            output.buf().extend_from_slice(b"later\n");
        }
        let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') else {
            return Flow::NeedInput;
        };
        let line = &input.bytes()[..=end];
        input.consume(line.len());
        session.owed = true;
        self.waiting = output.conn_id();
        if line == b"timed\n" {
            self.deadline = Some(Instant::now() + Duration::from_millis(20));
        } else {
            rustix::io::write(&self.eventfd, &1u64.to_ne_bytes()).unwrap();
        }
        Flow::Wait
    }

    fn datagram(&mut self, _: &Peer, _: &[u8], _: &mut Vec<u8>) -> net::DatagramFate {
        net::DatagramFate::Dropped
    }

    fn close(&mut self, _session: Session, _reason: CloseReason) {}

    fn outside(&self) -> Option<BorrowedFd<'_>> {
        Some(self.eventfd.as_fd())
    }

    fn on_outside(&mut self) {
        rustix::io::read(&self.eventfd, &mut [0; 8]).unwrap();
        self.answered = true;
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn after_turn(&mut self, resumed: &mut Vec<ConnId>) {
        if self.answered {
            resumed.extend(self.waiting.take());
        }
    }

    fn has_pending_replies(&self, session: &Session) -> bool {
        session.owed
    }
}

fn with_server(test: impl FnOnce(SocketAddr)) {
    let listen =
        Listen { tcp: vec!["127.0.0.1:0".parse().unwrap()], backlog: 16, ..Listen::default() };
    let config = Config { workers: 1, ..Config::default() };
    let handle = net::start(listen.bind().unwrap(), &config, Arc::new(Unbudgeted), |_, _| Later {
        eventfd: rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        waiting: None,
        answered: false,
        deadline: None,
    })
    .unwrap();
    test(handle.control().tcp_addresses().next().unwrap());
    handle.stop();
    handle.join();
}

#[test]
fn an_external_or_timed_reply_resumes_its_connection() {
    with_server(|address| {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut got = [0; 18];
        // The second and the third line have arrived while the first waits.
        client.write_all(b"a\ntimed\nb\n").unwrap();
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"later\nlater\nlater\n");
    });
}

#[test]
fn pending_replies_are_sent_after_the_end_of_input() {
    with_server(|address| {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.write_all(b"timed\ntimed\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"later\nlater\n");
    });
}
