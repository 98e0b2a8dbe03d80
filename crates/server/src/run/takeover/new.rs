//! The side that takes over.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;
use std::time::Duration;

use net::Inherited;
use rustix::process::Uid;

use super::channel::{Channel, Message};
use super::passed_file;
use super::{END, HELLO, STEP_PATIENCE, successor_socket};
use crate::run::Failure;

/// The server to replace.
#[derive(Debug)]
pub(in crate::run) struct Predecessor {
    channel: Channel,
    /// The interval of its watchdog. An older server does not send it.
    pub(in crate::run) watchdog: Option<Duration>,
}

impl Predecessor {
    /// Asks the server with this memory file to hand over, and returns its sockets. It keeps
    /// serving. `user` is the present or future user of this process.
    ///
    /// # Errors
    ///
    /// There is no such server, or it refuses, or its user is neither `user` nor root.
    pub(in crate::run) fn ask(
        memory_file: &Path,
        settings: u64,
        user: Uid,
    ) -> Result<(Self, Inherited), Failure> {
        let path = successor_socket(memory_file);
        let channel = Channel::connect(&path).map_err(|error| {
            let path = path.display();
            failed(format!("cannot connect to the running server at {path}: {error}"))
        })?;
        if !channel.is_with(user) {
            let path = path.display();
            return Err(failed(format!(
                "{path}: the process that listens there belongs to another user"
            )));
        }
        let mut predecessor = Self { channel, watchdog: None };
        predecessor.say(&format!("{HELLO} {settings:016x}"))?;
        let mut inherited = Inherited::default();
        loop {
            let Message { text, descriptors: sockets, .. } = predecessor.hear()?;
            match text.split_once('\n').unwrap_or((&text, "")) {
                ("sockets", descriptions) => {
                    for (description, socket) in descriptions.lines().zip(sockets) {
                        inherited
                            .add(description, socket)
                            .map_err(|error| failed(format!("a socket cannot be used: {error}")))?;
                    }
                }
                (END, micros) => {
                    predecessor.watchdog = micros.parse().ok().map(Duration::from_micros);
                    return Ok((predecessor, inherited));
                }
                (refusal, _) => return Err(failed(refusal.to_owned())),
            }
        }
    }

    /// Reports that only the memory is missing, and waits for it: the file, and its ticket. From
    /// now on neither server serves.
    ///
    /// # Errors
    ///
    /// The other server is gone or does not answer, or its file is not the one at `path`.
    pub(in crate::run) fn take_memory(&self, path: &Path) -> Result<(OwnedFd, u64), Failure> {
        self.say(&format!("ready {}", process::id()))?;
        let Message { text, descriptors: files, .. } = self.hear()?;
        let ticket = text.strip_prefix("memory ").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        match (files.into_iter().next(), ticket) {
            (Some(file), Some(ticket)) => {
                let file = passed_file::checked(file, path)
                    .map_err(|error| failed(format!("{}: {error}", path.display())))?;
                Ok((file, ticket))
            }
            _ => Err(failed(text)),
        }
    }

    /// Reports that this process cannot serve, and the reason: the other server serves again.
    pub(in crate::run) fn refuse(&self, reason: &str) {
        // If it is already gone, nobody listens.
        let _ = self.channel.send(reason, &[]);
    }

    /// Reports that clients are served: the other server may end.
    pub(in crate::run) fn dismiss(&self) {
        // If it is already gone, nothing is lost.
        let _ = self.channel.send("serving", &[]);
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        self.channel.send(text, &[]).map_err(|error| lost(&error))
    }

    fn hear(&self) -> Result<Message, Failure> {
        match self.channel.receive(STEP_PATIENCE) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => {
                Err(failed("the running server ended or cancelled the takeover".to_owned()))
            }
            Err(error) => Err(lost(&error)),
        }
    }
}

fn lost(error: &io::Error) -> Failure {
    failed(format!("the running server does not answer: {error}"))
}

fn failed(message: String) -> Failure {
    Failure::os(format!("--takeover: {message}"))
}
