//! `ModifyExptimeRoute`: changes the expiry time of stores.
//!
//! A negative time stays: it ends an item at once, or returns a lease's token. Another time would
//! give such an item a life, with a value that is often empty.

use std::sync::Arc;

use proto::exptime;

use super::{Answer, Pick, Route, RouteRef, words};
use crate::context::Context;
use upstream::{Command, CommandClass, Request};

/// The change of an expiry time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// This or the request's time, whichever ends first.
    Min(i64),
    /// This.
    Set(i64),
}

/// Expiry times beyond this many seconds are Unix times.
const OFFSET_MAX: i64 = 30 * 24 * 60 * 60;

impl Change {
    fn of(self, exptime: i64, unix_secs: u64) -> i64 {
        match self {
            _ if exptime < 0 => exptime,
            Self::Set(new) => new,
            Self::Min(limit) => {
                let now = i64::try_from(unix_secs).unwrap_or(i64::MAX);
                let left = if exptime > OFFSET_MAX { exptime.saturating_sub(now) } else { exptime };
                let is_longer = exptime == 0 || left > limit;
                if limit != 0 && is_longer { limit } else { exptime }
            }
        }
    }
}

/// Gives stores another expiry time.
#[derive(Debug)]
pub struct ModifyExptimeRoute {
    /// The child.
    pub target: RouteRef,
    /// The change of the expiry time.
    pub change: Change,
}

/// Returns true if the request carries an expiry time for an item that it stores, touches or makes
/// stale.
fn has_exptime(request: &Request<'_>) -> bool {
    match request.op {
        Command::Append | Command::Prepend => false,
        Command::Touch
        | Command::Gat
        | Command::Gats
        | Command::MetaGet
        | Command::MetaArithmetic => true,
        Command::MetaDelete => words::find(request.words, b'T').is_some(),
        op => op.class() == CommandClass::Update,
    }
}

/// Returns true if the request returns a lease's token, indicated by its negative expiry time.
pub(super) fn gives_back(request: &Request<'_>) -> bool {
    let mut words = request.words.split(|byte| *byte == b' ');
    match request.op {
        Command::LeaseSet => request.exptime < 0,
        Command::MetaSet => {
            let is_token = |word: &[u8]| word.first() == Some(&b'G');
            let time = |word: &[u8]| word.strip_prefix(b"T").and_then(exptime::parse);
            let is_time = |word: &[u8]| time(word).is_some_and(|time| time < 0);
            words.clone().any(is_token) && words.any(is_time)
        }
        _ => false,
    }
}

/// The words of a meta command with other times: `T`, and `N` for created items. A store without
/// `T` gets one.
fn changed_words(request: &Request<'_>, change: Change, unix_secs: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(request.words.len() + 16);
    let mut has_time = false;
    for word in request.words.split(|byte| *byte == b' ') {
        let Some((letter, argument)) = word.split_first() else { continue };
        if !out.is_empty() {
            out.push(b' ');
        }
        match exptime::parse(argument).filter(|_| matches!(letter, b'T' | b'N')) {
            Some(time) => {
                has_time |= *letter == b'T';
                out.push(*letter);
                out.extend_from_slice(change.of(time, unix_secs).to_string().as_bytes());
            }
            None => out.extend_from_slice(word),
        }
    }
    if !has_time && request.op == Command::MetaSet {
        let space = if out.is_empty() { "" } else { " " };
        out.extend_from_slice(format!("{space}T{}", change.of(0, unix_secs)).as_bytes());
    }
    out
}

impl Route for ModifyExptimeRoute {
    fn name(&self) -> String {
        match self.change {
            Change::Min(exptime) => format!("modify-exptime|min|{exptime}"),
            Change::Set(exptime) => format!("modify-exptime|set|{exptime}"),
        }
    }

    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        let changes = has_exptime(request);
        if request.op.is_meta() && changes {
            return Pick::Run;
        }
        if changes {
            request.exptime = self.change.of(request.exptime, cx.unix_secs());
        }
        self.target.pick(cx, request)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, mut request: Request<'a>) -> Answer<'a> {
        if !has_exptime(&request) {
            return self.target.route(cx, request);
        }
        request.exptime = self.change.of(request.exptime, cx.unix_secs());
        if !request.op.is_meta() {
            return self.target.route(cx, request);
        }
        Box::pin(async move {
            let words = changed_words(&request, self.change, cx.unix_secs());
            self.target.route(cx, Request { words: &words, ..request }).await
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.target)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_time_wins_and_zero_is_the_longest() {
        let now = 1_800_000_000;
        let min = |exptime| Change::Min(10).of(exptime, now);
        assert_eq!([min(0), min(5), min(10), min(100), min(-1)], [10, 5, 10, 10, -1]);
        // Unix times are compared by the time left.
        assert_eq!([min(1_800_000_005), min(1_800_000_500)], [1_800_000_005, 10]);
        assert_eq!(Change::Min(0).of(7, now), 7);
        assert_eq!(Change::Set(0).of(7, now), 0);
    }

    #[test]
    fn an_item_that_ends_at_once_gets_no_life() {
        for change in [Change::Set(300), Change::Set(0), Change::Min(10)] {
            assert_eq!(change.of(-1, 1_800_000_000), -1);
        }
        let set = Request { words: b"G5 T-1", ..Request::new(Command::MetaSet, b"k") };
        assert_eq!(changed_words(&set, Change::Set(300), 0), b"G5 T-1");
    }

    #[test]
    fn a_stale_item_gets_the_changed_time() {
        let delete = |words| Request { words, ..Request::new(Command::MetaDelete, b"k") };
        let words = b"I T5000";
        assert!(has_exptime(&delete(words)) && !has_exptime(&delete(b"I")));
        assert_eq!(changed_words(&delete(words), Change::Min(10), 0), b"I T10");
    }

    #[test]
    fn released_tokens_are_recognized() {
        let request = Request { exptime: -1, ..Request::new(Command::LeaseSet, b"k") };
        assert!(gives_back(&request) && !gives_back(&Request { exptime: 0, ..request }));
        assert!(!gives_back(&Request { op: Command::Set, ..request }));
        let meta = |words| Request { words, ..Request::new(Command::MetaSet, b"k") };
        assert!(gives_back(&meta(b"G5 T-1")) && gives_back(&meta(b"T-1 k G5")));
        assert!(gives_back(&meta(b"G5 T4294967295")), "-1 in 32 bits");
        assert!(!gives_back(&meta(b"G5 T10")) && !gives_back(&meta(b"T-1 F5")));
    }

    #[test]
    fn times_of_meta_commands_are_changed() {
        let request = Request { words: b"k T100 O5", ..Request::new(Command::MetaSet, b"k") };
        assert_eq!(changed_words(&request, Change::Min(10), 0), b"k T10 O5");
        let request = Request { words: b"k", ..request };
        assert_eq!(changed_words(&request, Change::Min(10), 0), b"k T10");
        let request = Request { words: b"v", op: Command::MetaGet, ..request };
        assert_eq!(changed_words(&request, Change::Min(10), 0), b"v");
        let request = Request { words: b"v N60 t", ..request };
        assert_eq!(changed_words(&request, Change::Min(10), 0), b"v N10 t");
        let request = Request { words: b"N0 J5 T5", op: Command::MetaArithmetic, ..request };
        assert_eq!(changed_words(&request, Change::Min(10), 0), b"N10 J5 T5");
        assert_eq!(changed_words(&request, Change::Set(20), 0), b"N20 J5 T20");
    }
}
