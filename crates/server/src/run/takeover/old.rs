//! The side that hands over.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::{Control, Sockets};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use store::Store;

use super::channel::{self, Channel, Message};
use super::refused::Refused;
use super::{
    DESCRIPTORS_MAX, DRAIN_PATIENCE, END, HELLO, OTHERS_PATIENCE, STEP_PATIENCE, successor_socket,
};
use crate::clock::Clock;
use crate::log::Log;
use crate::run::{Failure, memory};

/// The socket that accepts a successor.
#[derive(Debug)]
pub(in crate::run) struct SuccessorListener {
    path: PathBuf,
    socket: OwnedFd,
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

/// The state of the listener's thread.
#[derive(Debug)]
struct Shared {
    /// Copies of the listening sockets.
    sockets: Sockets,
    settings: u64,
    /// The interval of the watchdog.
    watchdog: Option<Duration>,
    control: Control,
    log: Log,
    conversation: Mutex<Conversation>,
}

/// The conversation of the moment, and its result.
#[derive(Debug, Default)]
struct Conversation {
    /// A copy of the socket, while the other side is not ready.
    socket: Option<OwnedFd>,
    /// The successor that is ready to take over.
    successor: Option<Successor>,
    /// The server ends: no other conversation starts.
    is_closed: bool,
}

impl Conversation {
    /// True if the conversation on `channel` may start; [`Self::close`] then ends it.
    fn begin(&mut self, channel: &Channel) -> io::Result<bool> {
        if !self.is_closed {
            self.socket = Some(channel.as_fd().try_clone_to_owned()?);
        }
        Ok(!self.is_closed)
    }

    /// Ends it with this result, unless the server ended first.
    fn end(&mut self, agreed: Result<Successor, Refused>) -> Result<Pid, Refused> {
        // The other side waits until all copies are closed.
        self.socket = None;
        if self.is_closed {
            return Err(Refused::Ending);
        }
        let successor = agreed?;
        let pid = successor.pid;
        self.successor = Some(successor);
        Ok(pid)
    }

    /// Returns the successor, if there is one. Otherwise the other side may be silent for long, so
    /// all waits for it end.
    fn close(&mut self) -> Option<Successor> {
        self.is_closed = true;
        if let Some(socket) = self.socket.take() {
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
        self.successor.take()
    }
}

/// Another server that is ready to take over, and waits for the memory.
#[derive(Debug)]
struct Successor {
    channel: Channel,
    pid: Pid,
}

/// The result of a handover.
#[derive(Debug)]
pub(in crate::run) enum HandedOver {
    /// The successor serves.
    Done,
    /// The successor is gone: the server continues with these sockets, and the memory that was left
    /// under this ticket.
    Failed(Sockets, u64),
}

impl SuccessorListener {
    /// Opens it, or logs a warning and returns `None`. The memory file belongs to this server, so
    /// anything at the path is from a former owner.
    pub(in crate::run) fn open(
        memory_file: &Path,
        settings: u64,
        watchdog: Option<Duration>,
        sockets: Sockets,
        control: Control,
        log: Log,
    ) -> Option<Self> {
        let path = successor_socket(memory_file);
        let _ = fs::remove_file(&path);
        let conversation = Mutex::default();
        let shared = Shared { sockets, settings, watchdog, control, log, conversation };
        let shared = Arc::new(shared);
        let opened = channel::open(&path).and_then(|socket| {
            let (listener, shared) = (socket.try_clone()?, Arc::clone(&shared));
            let body = move || shared.answer_all(&listener);
            let thread = thread::Builder::new().name("takeover".to_owned()).spawn(body)?;
            Ok((socket, thread))
        });
        match opened {
            Ok((socket, thread)) => Some(Self { path, socket, thread, shared }),
            Err(error) => {
                let path = path.display();
                log.warning(format_args!("--takeover will not be possible: {path}: {error}"));
                None
            }
        }
    }

    /// The predecessor is gone: claims the files that it left.
    pub(in crate::run) fn claim_files(&self) {
        self.shared.sockets.claim_files();
    }

    /// Closes it when the workers have ended. A waiting successor gets the memory; otherwise the
    /// memory is put in order for the next start.
    ///
    /// # Errors
    ///
    /// Fails if the successor failed, and this server cannot replace it.
    pub(in crate::run) fn close(
        self,
        store: &Arc<Store>,
        clock: Clock,
    ) -> Result<HandedOver, Failure> {
        // Both end the thread's wait. It handles one conversation at a time.
        let successor = self.shared.conversation().close();
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        let _ = self.thread.join();
        let log = self.shared.log;
        let Some(successor) = successor else {
            let _ = fs::remove_file(&self.path);
            memory::close(store, clock, 0, &log);
            return Ok(HandedOver::Done);
        };
        let ticket = crate::run::random_seed().max(1);
        let outcome = match successor.hand_over(store, clock, ticket, &log) {
            Ok(()) => Ok(HandedOver::Done),
            Err(reason) if successor.is_gone() => {
                log.warning(format_args!(
                    "the new server failed ({reason}); this server continues"
                ));
                let sockets = self.shared.sockets.try_clone();
                sockets.map(|sockets| HandedOver::Failed(sockets, ticket))
            }
            // Two must never use one memory.
            Err(reason) => Err(io::Error::other(format!("{reason}, and it does not end"))),
        };
        if !matches!(outcome, Ok(HandedOver::Failed(..))) {
            self.shared.sockets.leave_files();
        }
        outcome.map_err(|error| {
            Failure::os(format!("the successor failed, and this server cannot go on: {error}"))
        })
    }
}

impl Shared {
    fn conversation(&self) -> MutexGuard<'_, Conversation> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_all(&self, listener: &OwnedFd) {
        loop {
            let channel = match Channel::accept(listener) {
                Ok(channel) => channel,
                // It was shut down.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                // Too few descriptors, or a caller that has left: this may pass.
                Err(error) => {
                    self.log.warning(format_args!("no takeover: {error}"));
                    pause(listener);
                    continue;
                }
            };
            match self.converse(channel) {
                Ok(pid) => {
                    self.log.always(format_args!("process {pid} takes over"));
                    self.control.drain(DRAIN_PATIENCE);
                    return;
                }
                Err(reason) => self.log.warning(format_args!("no takeover: {reason}")),
            }
        }
    }

    /// Agrees with the other side, or refuses it. Returns the process that will take over.
    fn converse(&self, channel: Channel) -> Result<Pid, Refused> {
        if !self.conversation().begin(&channel)? {
            return Err(Refused::Ending);
        }
        let agreed = self.negotiate(&channel).map(|pid| Successor { channel, pid });
        self.conversation().end(agreed)
    }

    /// Offers the sockets, and returns the process that is ready to serve them.
    fn negotiate(&self, channel: &Channel) -> Result<Pid, Refused> {
        if !channel.is_with(geteuid()) {
            // Closing a socket with unread data resets it, and the answer is lost.
            let _ = channel.receive(OTHERS_PATIENCE);
            let _ = channel.send("the running server belongs to another user", &[]);
            return Err(Refused::OtherUser);
        }
        let hello = hear(channel)?.text;
        let Some(settings) = hello.strip_prefix(HELLO) else {
            let _ = channel.send("the running server speaks another version of this", &[]);
            return Err(Refused::OtherVersion);
        };
        if u64::from_str_radix(settings.trim(), 16) != Ok(self.settings) {
            let refusal = "the memory of the running server is of another format: -I, -n, -f or the version \
                           differ, or -m is out of its reach; end it and start anew";
            let _ = channel.send(refusal, &[]);
            return Err(Refused::OtherSettings);
        }
        self.offer(channel)?;
        let ready = hear(channel)?;
        ready.sender.filter(|_| ready.text.starts_with("ready")).ok_or(Refused::Senseless)
    }

    fn offer(&self, channel: &Channel) -> io::Result<()> {
        let sockets: Vec<_> = self.sockets.descriptors().collect();
        for some in sockets.chunks(DESCRIPTORS_MAX) {
            let descriptions: Vec<_> = some.iter().map(|(text, _)| text.as_str()).collect();
            let descriptors: Vec<_> = some.iter().map(|(_, socket)| *socket).collect();
            channel.send(&format!("sockets\n{}", descriptions.join("\n")), &descriptors)?;
        }
        let micros = self.watchdog.map(|interval| interval.as_micros().to_string());
        channel.send(&format!("{END}\n{}", micros.unwrap_or_default()), &[])
    }
}

impl Successor {
    /// Gives it the memory, and waits until it serves.
    fn hand_over(
        &self,
        store: &Arc<Store>,
        clock: Clock,
        ticket: u64,
        log: &Log,
    ) -> Result<(), Refused> {
        let file = store.share_file()?.ok_or(Refused::NoMemoryFile)?;
        memory::close(store, clock, ticket, log);
        self.channel.send(&format!("memory {ticket:x}"), &[file.as_fd()])?;
        match hear(&self.channel)?.text.as_str() {
            "serving" => Ok(()),
            other => Err(Refused::Failed(other.to_owned())),
        }
    }

    /// True if it has ended; otherwise it is killed. Its last message may come before it has
    /// removed its files and written its log.
    fn is_gone(&self) -> bool {
        self.channel.is_left(Duration::from_secs(1)) || {
            // A failure means that it has ended or may not be killed: the channel shows which.
            let _ = kill_process(self.pid, Signal::KILL);
            self.channel.is_left(Duration::from_secs(10))
        }
    }
}

/// Waits one second, or until the listener is shut down.
fn pause(listener: &OwnedFd) {
    let mut descriptors = [PollFd::new(listener, PollFlags::empty())];
    // If it fails, the next try comes sooner.
    let _ = poll(&mut descriptors, Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
}

fn hear(channel: &Channel) -> Result<Message, Refused> {
    match channel.receive(STEP_PATIENCE) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(Refused::Gone),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides of a conversation.
    fn pair() -> (Channel, Channel) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = channel::open(&path).unwrap();
        let client = Channel::connect(&path).unwrap();
        (Channel::accept(&listener).unwrap(), client)
    }

    /// The other side may be a stopped process.
    #[test]
    fn an_ending_server_waits_for_no_silent_successor() {
        let (ours, _silent) = pair();
        let conversation = Arc::new(Mutex::new(Conversation::default()));
        assert!(conversation.lock().unwrap().begin(&ours).unwrap());
        let closer = Arc::clone(&conversation);
        let closing = thread::spawn(move || closer.lock().unwrap().close().is_none());
        // Without the end of the server, this wait would outlast the test.
        assert!(ours.receive(Duration::from_secs(24 * 3600)).unwrap().is_none());
        assert!(closing.join().unwrap(), "no successor");
        let pid = rustix::process::getpid();
        let late = conversation.lock().unwrap().end(Ok(Successor { channel: ours, pid }));
        assert!(matches!(late, Err(Refused::Ending)), "{late:?}");
        let (next, _client) = pair();
        assert!(!conversation.lock().unwrap().begin(&next).unwrap());
    }

    #[test]
    fn a_refused_side_sees_the_end_of_the_conversation() {
        let (ours, client) = pair();
        let mut conversation = Conversation::default();
        assert!(conversation.begin(&ours).unwrap());
        conversation.end(Err(Refused::Senseless)).unwrap_err();
        drop(ours);
        assert!(client.receive(Duration::from_secs(24 * 3600)).unwrap().is_none());
    }

    #[test]
    fn a_ready_successor_stays_when_the_server_ends() {
        let (ours, client) = pair();
        let mut conversation = Conversation::default();
        assert!(conversation.begin(&ours).unwrap());
        let pid = rustix::process::getpid();
        conversation.end(Ok(Successor { channel: ours, pid })).unwrap();
        let successor = conversation.close().unwrap();
        client.send("serving", &[]).unwrap();
        assert_eq!(hear(&successor.channel).unwrap().text, "serving");
    }
}
