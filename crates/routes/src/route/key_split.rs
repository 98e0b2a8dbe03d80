//! `KeySplitRoute`: a hot key under several names, `key`, `key::1`, `key::2`, ..., so that several
//! servers share its load.

use std::sync::Arc;

use proto::meta::Options;
use proto::text::Words;
use routeconf::select::{Replicas, key_replica, own_replica, replicas_asked};

use super::all::{ask_aside, decide};
use super::race::Race;
use super::{Answer, Route, RouteRef, words};
use crate::context::Context;
use upstream::{Command, Failure, Outcome, OwnedReply, Request};

/// A host reads and writes the name of its own number; deletes go to all names.
#[derive(Debug)]
pub struct KeySplitRoute {
    /// The child.
    pub destination: RouteRef,
    /// The number of names, at least 2.
    pub replicas: u32,
    /// Sets go to all names.
    pub stores_all: bool,
    /// Gets go to all names, and the first hit is the reply.
    pub first_hit: bool,
}

impl KeySplitRoute {
    async fn own(&self, cx: &Arc<Context>, request: Request<'_>, own: u32) -> OwnedReply {
        let Some(key) = key_replica(request.key, own) else {
            return self.destination.route(cx, request).await;
        };
        self.destination.route(cx, Request { key: &key, ..request }).await
    }

    /// Asks all names except this host's in the background.
    fn others_aside(&self, cx: &Arc<Context>, request: Request<'_>, own: u32) {
        let others = (0..self.replicas).filter(|replica| *replica != own);
        for key in others.filter_map(|replica| key_replica(request.key, replica)) {
            let asked = Request { key: &key, ..request };
            ask_aside(std::slice::from_ref(&self.destination), cx, &asked);
        }
    }

    /// Deletes the host's own item, whose cas unique `request` has, and then the other names with
    /// `words`, which lack it. A unique that differs deletes nothing.
    async fn delete(
        &self,
        cx: &Arc<Context>,
        request: Request<'_>,
        words: &[u8],
        own: u32,
    ) -> OwnedReply {
        let others = || self.others_aside(cx, Request { words, ..request }, own);
        decide(cx, self.own(cx, request, own), others).await
    }

    async fn first_hit(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let mut race = Race::new(cx, &request);
        for key in (0..self.replicas).filter_map(|replica| key_replica(request.key, replica)) {
            let asked = Request { key: &key, ..request }.to_owned();
            race.ask(&self.destination, &Arc::new(asked));
        }
        let is_hit = |reply: &OwnedReply| {
            let takes = matches!(reply.outcome, Outcome::Stored | Outcome::StaleStored);
            takes || reply.outcome.is_hit()
        };
        race.first(is_hit).await.unwrap_or_else(|| OwnedReply::from(Failure::LocalError))
    }
}

/// The classic command that a request equals for names of a key. A meta command has one only if it
/// depends on nothing that differs between them.
fn acts_as(request: &Request<'_>) -> Command {
    if !request.op.is_meta() {
        return request.op;
    }
    let Ok((options, mode)) = Options::parse(Words::new(request.words)) else { return request.op };
    let is_set = mode.is_none_or(|mode| mode.first() == Some(&b'S'));
    let (is_tied, creates) = (options.lease.is_some(), options.autoviv_exptime.is_some());
    let changes = creates || options.recache_secs.is_some() || options.exptime.is_some();
    match request.op {
        Command::MetaSet if is_set && !is_tied && options.compare_cas.is_none() => Command::Set,
        Command::MetaGet if !is_tied && !changes && !options.wants_cas => Command::Get,
        op => op,
    }
}

impl Route for KeySplitRoute {
    fn name(&self) -> String {
        format!("keysplit|{}", self.replicas)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let own = own_replica(request.key, self.replicas, cx.host_id());
        match replicas_asked(acts_as(&request), self.stores_all, self.first_hit) {
            Replicas::FirstHit => return Box::pin(self.first_hit(cx, request)),
            Replicas::All => match words::without_unique(request.words) {
                Some(words) => {
                    return Box::pin(async move { self.delete(cx, request, &words, own).await });
                }
                None => self.others_aside(cx, request, own),
            },
            Replicas::Own => {}
        }
        Box::pin(self.own(cx, request, own))
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.destination)]
    }

    fn keys(&self, cx: &Context, request: &Request<'_>) -> Vec<(Vec<u8>, Option<u8>)> {
        let own = own_replica(request.key, self.replicas, cx.host_id());
        let others = match replicas_asked(acts_as(request), self.stores_all, self.first_hit) {
            Replicas::Own => 0..0,
            Replicas::All | Replicas::FirstHit => 0..self.replicas,
        };
        let names = std::iter::once(own).chain(others.filter(|replica| *replica != own));
        let keys = names.filter_map(|replica| key_replica(request.key, replica));
        keys.map(|key| (key, request.hashed)).collect()
    }
}
