//! Administrators' commands in a session: answered at once, or started and continued.
//!
//! [`crate::admin`] has the commands' actions and uses the session only for the request's origin.

use net::{Flow, Input, Output};
use proto::binary::{self, Header};
use proto::reply;
use proto::text::{Admin, AdminCommand, Words};
use store::{BagStep, BagWalk, Liveness};

use super::context::Context;
use super::login;
use super::pending_reply::PendingReply;
use super::state::{BagListing, Session, State, Step};
use crate::admin::dump::{Dump, Progress, WallClock};
use crate::admin::{self, crawler, stats, stats_classes, tuning};
use crate::shared::Shared;
use watch::hub::Events;

/// Serves an administrator's command.
pub(super) fn serve(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    command: &Admin<'_>,
    output: &mut Output<'_>,
) -> Step {
    let words = command.words;
    let context = cx.admin();
    let answer = match command.command {
        AdminCommand::Stats => return stats(cx, session, pending, words, output),
        AdminCommand::Watch => return watch(&cx.shared, session, pending, words, output),
        AdminCommand::LruCrawler => {
            match crawler::command(&context, session.is_datagram(), words) {
                Ok(dump) => return begin_dump(session, pending, dump, output),
                Err(answer) => answer,
            }
        }
        AdminCommand::Shutdown => match admin::shutdown(&context, session.is_datagram(), words) {
            Ok(()) => return Step::Stop(Flow::Close),
            Err(answer) => answer,
        },
        AdminCommand::CacheMemlimit => admin::cache_memlimit(&context, words),
        AdminCommand::Verbosity => admin::verbosity(&context, words),
        AdminCommand::Extstore => admin::needs_words(words, 2),
        AdminCommand::Lru => tuning::lru(&context, words),
        AdminCommand::Slabs => tuning::slabs(&context, words),
        AdminCommand::RefreshCerts => return login::refresh(&cx.shared, session, pending, output),
    };
    pending.line_unless(command.noreply, output.buf(), answer).into()
}

/// `stats` and its groups in text.
fn stats(
    cx: &Context,
    session: &mut Session,
    pending: PendingReply,
    mut words: Words<'_>,
    output: &mut Output<'_>,
) -> Step {
    let (out, context) = (output.buf(), cx.admin());
    match words.next().unwrap_or_default() {
        b"reset" => {
            stats::reset(&context);
            pending.line(out, reply::RESET).into()
        }
        b"detail" => pending.write(|| stats::detail(&context, words, out)).into(),
        b"cachedump" => match stats::cachedump(&context, session.is_datagram(), words) {
            Ok(dump) => begin_dump(session, pending, dump, output),
            Err(answer) => pending.line(out, answer).into(),
        },
        b"conns" => {
            let own_fd = session.peer.fd;
            stats::conns(&context, own_fd, &mut |name, value| reply::write_stat(out, name, value));
            pending.line(out, reply::END).into()
        }
        b"bags" => list_bags(session, pending, None),
        group => {
            let is_known = stats::group(&context, group, &mut |name, value| {
                reply::write_stat(out, name, value);
            });
            pending.line(out, if is_known { reply::END } else { admin::ERROR }).into()
        }
    }
}

/// Writes the next part of a dump.
pub(super) fn go_on_dumping(
    cx: &mut Context,
    session: &mut Session,
    output: &mut Output<'_>,
) -> Step {
    let State::Dumping(dump, _) = &mut session.state else { return Step::Continue };
    let zero_at_unix = cx.shared.engine.started_at_unix();
    let clock = WallClock { zero_at_unix, now_secs: cx.engine.now_secs() };
    for _ in 0..DUMP_STEPS {
        let out = output.buf();
        let engine = &cx.engine;
        let progress = dump.step(engine.participant(), |dump, item| {
            if item.liveness() == Liveness::Live {
                dump.write(item, &clock, engine.cas_of(item), out);
            }
        });
        // The walk's section is over; a long dump must not hold back the store's memory.
        cx.engine.quiesce();
        match progress {
            Progress::MoreOfClass | Progress::NextClass => {}
            Progress::Ended => return end_dump(session, output),
        }
        // A client that reads everything at once gets no more of the worker's time than others.
        if output.is_full() && !output.flush() {
            return Step::Stop(Flow::Blocked);
        }
    }
    Step::Stop(Flow::Yield)
}

/// Starts `stats bags`, for packets with this header or in text.
pub(super) fn list_bags(
    session: &mut Session,
    pending: PendingReply,
    header: Option<Header>,
) -> Step {
    let listing = BagListing { pending, header, walk: BagWalk::default() };
    session.state = State::ListingBags(Box::new(listing));
    Step::Continue
}

/// Lists the next bags.
pub(super) fn go_on_listing_bags(
    cx: &Context,
    session: &mut Session,
    output: &mut Output<'_>,
) -> Step {
    let State::ListingBags(listing) = &mut session.state else { return Step::Continue };
    let header = listing.header;
    for _ in 0..BAG_STEPS {
        let step = cx.shared.engine.store().walk_bags(&mut listing.walk);
        let out = output.buf();
        match step {
            BagStep::More => {}
            BagStep::Bag(bag) => stats_classes::bag(&bag, &mut |name, value| match &header {
                Some(header) => binary::reply::write_stat(out, header, name, value),
                None => reply::write_stat(out, name, value),
            }),
            BagStep::Ended => return end_listing(session, output),
        }
        if output.is_full() && !output.flush() {
            return Step::Stop(Flow::Blocked);
        }
    }
    Step::Stop(Flow::Yield)
}

fn end_listing(session: &mut Session, output: &mut Output<'_>) -> Step {
    let State::ListingBags(listing) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    let BagListing { pending, header, .. } = *listing;
    let out = output.buf();
    match header {
        Some(header) => pending.write(|| binary::reply::write_stat(out, &header, b"", b"")),
        None => pending.line(out, reply::END),
    }
    .into()
}

fn watch(
    shared: &Shared,
    session: &mut Session,
    pending: PendingReply,
    words: Words<'_>,
    output: &mut Output<'_>,
) -> Step {
    let answer: &[u8] = if !shared.watch_enabled || session.is_datagram() {
        b"CLIENT_ERROR watch commands not allowed\r\n"
    } else if let Some(events) = Events::of(words, Events::FETCHERS) {
        match shared.watchers.add(events, output.waker()) {
            Some(watching) => {
                session.state = State::Watching(Box::new(watching));
                reply::OK
            }
            None => b"WATCHER_TOO_MANY log watcher limit reached\r\n",
        }
    } else {
        admin::ERROR
    };
    pending.line(output.buf(), answer).into()
}

/// Passes some lines on. Input from a watcher is ignored.
pub(super) fn go_on_watching(
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let State::Watching(watching) = &mut session.state else { return Step::Continue };
    Step::Stop(watching.serve(input, output))
}

/// Steps of `stats bags` before the other connections get their turn: about a tenth of a
/// millisecond.
const BAG_STEPS: usize = 8;

/// Steps of a dump before the other connections get their turn: about half a millisecond.
const DUMP_STEPS: usize = 8;

fn begin_dump(
    session: &mut Session,
    pending: PendingReply,
    dump: Dump,
    output: &mut Output<'_>,
) -> Step {
    output.buf().extend_from_slice(dump.head());
    session.state = State::Dumping(Box::new(dump), pending);
    Step::Continue
}

fn end_dump(session: &mut Session, output: &mut Output<'_>) -> Step {
    let State::Dumping(dump, pending) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    pending.line(output.buf(), dump.end()).into()
}
