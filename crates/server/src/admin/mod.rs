//! Commands for administrators: statistics, settings, dumps, watching, and the switches that memcached has.
//!
//! They are served by the workers, between requests of clients, so none of them takes long or holds a lock while it writes:
//! what is long (dumps) goes in steps, what is endless (watching) goes through a bounded buffer.
//!
//! Commands that tune an engine which is not ours are read, checked for their shape and accepted.

pub mod crawler;
pub mod dump;
pub mod prefix;
pub mod settings;
mod stats;
mod stats_classes;
mod stats_samples;
mod tuning;
pub mod watch;

use std::sync::atomic::Ordering;

use net::{Flow, Output};
use proto::text::{Admin, AdminCommand, Words};
use proto::{Error, number, reply};

use crate::run::DRAIN_PATIENCE;
use crate::session::pending_reply::PendingReply;
use crate::session::state::{State, Step};
use crate::session::{Session, Worker};

/// A plain answer to an administrator's command.
type Answer = &'static [u8];

const ERROR: Answer = Error::Command.line();
const BAD_FORMAT: Answer = Error::Format.line();

impl Worker {
    /// Serves an administrator's command.
    pub(crate) fn admin(
        &mut self,
        session: &mut Session,
        pending: PendingReply,
        admin: &Admin<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let words = admin.words;
        let answer = match admin.command {
            AdminCommand::Stats => return self.stats_command(session, pending, words, output),
            AdminCommand::Watch => return self.watch_command(session, pending, words, output),
            AdminCommand::LruCrawler => match self.lru_crawler(session, words) {
                Ok(dump) => {
                    session.state = State::Dumping(Box::new(dump), pending);
                    return Step::Continue;
                }
                Err(answer) => answer,
            },
            AdminCommand::Shutdown => match self.shutdown(session, words) {
                Ok(()) => return Step::Stop(Flow::Close),
                Err(answer) => answer,
            },
            AdminCommand::CacheMemlimit => self.cache_memlimit(words),
            AdminCommand::Verbosity => self.verbosity(words),
            AdminCommand::Extstore => needs_words(words, 2),
            AdminCommand::Lru => self.lru(words),
            AdminCommand::Slabs => self.slabs(words),
            AdminCommand::RefreshCerts => return self.refresh(session, pending, output),
        };
        pending.line_unless(admin.noreply, output.buf(), answer).into()
    }

    fn verbosity(&self, mut words: Words<'_>) -> Answer {
        let Some(level) = words.next().and_then(number::parse_u32) else { return BAD_FORMAT };
        let level = u8::try_from(level.min(VERBOSITY_MAX)).unwrap_or_default();
        self.shared.verbosity.store(level, Ordering::Relaxed);
        reply::OK
    }

    fn cache_memlimit(&self, mut words: Words<'_>) -> Answer {
        let Some(megabytes) = words.next().and_then(number::parse_u64) else { return ERROR };
        if megabytes < 8 {
            return b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
        }
        if megabytes > 1_000_000_000 {
            return b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
        }
        self.shared.engine.store().set_memory_limit(megabytes << 20);
        reply::OK
    }

    /// Drains the server: what was read is answered, and the process ends.
    fn shutdown(&self, session: &Session, mut words: Words<'_>) -> Result<(), Answer> {
        if !self.shared.shutdown_enabled || session.is_datagram() {
            return Err(b"SERVER_ERROR: shutdown not enabled\r\n");
        }
        match words.next() {
            None | Some(b"graceful") => {
                self.control.drain(DRAIN_PATIENCE);
                Ok(())
            }
            Some(_) => Err(b"CLIENT_ERROR invalid shutdown mode\r\n"),
        }
    }
}

fn needs_words(words: Words<'_>, count: usize) -> Answer {
    if words.count() >= count { reply::OK } else { ERROR }
}

/// memcached's own ceiling.
const VERBOSITY_MAX: u32 = 2;
