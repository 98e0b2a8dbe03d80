//! `MigrateRoute`: keys move from one place to another, each at its own time, so that the load on
//! the database is spread.

use std::sync::Arc;

use hashing::routing_hash;

use super::all::ask;
use super::{Answer, Pick, Route, RouteRef};
use crate::context::Context;
use upstream::{CommandClass, Request};

/// A key moves at `start + interval + hash % interval`; deletes go to both places from `start` to
/// `start + 2 * interval`.
#[derive(Debug)]
pub struct MigrateRoute {
    /// The old place.
    pub from: RouteRef,
    /// The new place.
    pub to: RouteRef,
    /// Unix seconds.
    pub start_secs: u64,
    /// Seconds, at least 1.
    pub interval_secs: u64,
}

/// The side or sides that a request goes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// Both; gets go to the old place if `reads_old`, and it decides a delete with a cas unique.
    Both {
        reads_old: bool,
    },
    From,
    To,
}

impl MigrateRoute {
    fn place(&self, request: &Request<'_>, now: u64) -> Place {
        let interval = self.interval_secs.max(1);
        let hash = u64::from(routing_hash(request.routed_key()));
        let after = self.start_secs.saturating_add(interval);
        let moves = after.saturating_add(hash.checked_rem(interval).unwrap_or(0));
        let is_within = now >= self.start_secs && now < after.saturating_add(interval);
        match request.op.class() {
            CommandClass::Delete if is_within => Place::Both { reads_old: now < moves },
            _ if now < moves => Place::From,
            _ => Place::To,
        }
    }
}

impl Route for MigrateRoute {
    fn name(&self) -> String {
        "migrate".to_owned()
    }

    fn pick(&self, _cx: &Context, _request: &mut Request<'_>) -> Pick {
        // The clock is read when the future is made.
        Pick::Run
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        match self.place(&request, cx.unix_secs()) {
            Place::From => self.from.route(cx, request),
            Place::To => self.to.route(cx, request),
            Place::Both { reads_old } => {
                let (from, to) = (&self.from, &self.to);
                let (first, other) = if reads_old { (from, to) } else { (to, from) };
                Box::pin(ask(first, std::slice::from_ref(other), cx, request))
            }
        }
    }

    fn next(&self, cx: &Context, request: &mut Request<'_>) -> Vec<RouteRef> {
        match self.place(request, cx.unix_secs()) {
            Place::From => vec![Arc::clone(&self.from)],
            Place::To => vec![Arc::clone(&self.to)],
            Place::Both { .. } => vec![Arc::clone(&self.from), Arc::clone(&self.to)],
        }
    }
}
