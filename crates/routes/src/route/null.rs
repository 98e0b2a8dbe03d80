//! `NullRoute` and `DevNullRoute`: each command's reply for a miss, without a server.

use std::sync::Arc;

use proto::answer::MetaCode;

use super::{Answer, Pick, Route, RouteRef};
use crate::context::Context;
use upstream::{Command, Event, Outcome, OwnedReply, Request};

/// The outcome of a request that finds no item and no server (mcrouter's default reply).
#[must_use]
pub const fn default_outcome(op: Command) -> Outcome {
    match op {
        Command::Add
        | Command::Append
        | Command::Prepend
        | Command::Replace
        | Command::Set
        | Command::LeaseSet => Outcome::NotStored,
        Command::MetaGet | Command::MetaDebug => Outcome::Meta(MetaCode::En),
        Command::MetaSet => Outcome::Meta(MetaCode::Ns),
        Command::MetaDelete | Command::MetaArithmetic => Outcome::Meta(MetaCode::Nf),
        Command::FlushAll => Outcome::Ok,
        Command::Cas
        | Command::Decr
        | Command::Delete
        | Command::Gat
        | Command::Gats
        | Command::Get
        | Command::Gets
        | Command::Incr
        | Command::LeaseGet
        | Command::MetaInfo
        | Command::Touch
        | Command::Version => Outcome::NotFound,
    }
}

/// Swallows requests.
#[derive(Debug)]
pub struct NullRoute;

/// Swallows requests, and counts them.
#[derive(Debug)]
pub struct DevNullRoute;

impl Route for NullRoute {
    fn name(&self) -> String {
        "null".to_owned()
    }

    fn pick(&self, _cx: &Context, request: &mut Request<'_>) -> Pick {
        Pick::Answer(default_outcome(request.op))
    }

    fn route<'a>(&'a self, _cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move { OwnedReply::of(default_outcome(request.op)) })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}

impl Route for DevNullRoute {
    fn name(&self) -> String {
        "devnull".to_owned()
    }

    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        cx.traffic().event(Event::DevNull);
        NullRoute.pick(cx, request)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        cx.traffic().event(Event::DevNull);
        NullRoute.route(cx, request)
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}
