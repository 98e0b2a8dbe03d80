//! `FailoverRoute`: the next child when one fails; with an expiry time for the others it is the gutter of section 3.3 of the
//! paper (`FailoverWithExptimeRoute`).

use std::cell::Cell;
use std::rc::Rc;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::reply::{Failure, OwnedReply};
use crate::request::{Class, HASH_STOP, Request};

/// Which failures lead to the next child.
#[derive(Clone, Debug)]
pub struct FailoverErrors {
    /// Of get-like commands.
    pub gets: Vec<Failure>,
    /// Of update-like and arithmetic ones.
    pub updates: Vec<Failure>,
    /// Of deletes.
    pub deletes: Vec<Failure>,
}

impl Default for FailoverErrors {
    /// mcrouter's set: all but the client's own fault.
    fn default() -> Self {
        let all: Vec<_> = Failure::ALL.into_iter().filter(|failure| failure.fails_over()).collect();
        Self { gets: all.clone(), updates: all.clone(), deletes: all }
    }
}

impl FailoverErrors {
    fn contain(&self, class: Class, failure: Failure) -> bool {
        let list = match class {
            Class::Get => &self.gets,
            Class::Delete => &self.deletes,
            Class::Arithmetic | Class::Other | Class::Update => &self.updates,
        };
        list.contains(&failure)
    }
}

/// A bucket of tokens that requests fill and failovers empty.
#[derive(Debug)]
pub struct FailoverLimit {
    rate: f64,
    burst: f64,
    tokens: Cell<f64>,
}

impl FailoverLimit {
    /// `rate` tokens for each request, `burst` at the most and at first.
    #[must_use]
    pub fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, tokens: Cell::new(burst) }
    }

    fn request(&self) {
        self.tokens.set((self.tokens.get() + self.rate).min(self.burst));
    }

    fn take(&self) -> bool {
        let left = self.tokens.get() - 1.0;
        if left >= 0.0 {
            self.tokens.set(left);
        }
        left >= 0.0
    }
}

/// In which order the children after the first are tried.
#[derive(Debug)]
pub enum Order {
    /// As they stand.
    InOrder,
    /// Those that failed least of late first; the failures in a row of each.
    LeastFailures {
        /// Children that are tried, at the most.
        tries_max: usize,
        /// For each child.
        failures: Vec<Cell<u32>>,
    },
}

/// See the head of this file.
#[derive(Debug)]
pub struct FailoverRoute {
    /// The first is asked first.
    pub children: Vec<RouteRef>,
    /// In which order the others follow.
    pub order: Order,
    /// After which failures.
    pub errors: FailoverErrors,
    /// How often.
    pub limit: Option<FailoverLimit>,
    /// Keys get `:failover=1` behind the hash stop from the second try on, so that a server that is in both places
    /// keeps them apart.
    pub tags_keys: bool,
}

impl Order {
    fn of(&self, children: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..children).collect();
        if let Self::LeastFailures { tries_max, failures } = self {
            if let Some(others) = order.get_mut(1..) {
                others.sort_by_key(|index| failures.get(*index).map_or(0, Cell::get));
            }
            order.truncate(*tries_max);
        }
        order
    }

    fn note(&self, child: usize, failed: bool) {
        if let Self::LeastFailures { failures, .. } = self
            && let Some(count) = failures.get(child)
        {
            count.set(if failed { count.get().saturating_add(1) } else { 0 });
        }
    }
}

impl Route for FailoverRoute {
    fn name(&self) -> String {
        match self.order {
            Order::InOrder => "failover".to_owned(),
            Order::LeastFailures { .. } => "failover|leastfailures".to_owned(),
        }
    }

    fn route<'a>(&'a self, cx: &'a Rc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            if let Some(limit) = &self.limit {
                limit.request();
            }
            let tagged = self.tags_keys.then(|| tagged(request.key)).flatten();
            let mut last = OwnedReply::from(Failure::LocalError);
            for (tries, index) in self.order.of(self.children.len()).into_iter().enumerate() {
                if tries > 0 && self.limit.as_ref().is_some_and(|limit| !limit.take()) {
                    break;
                }
                let key = tagged.as_deref().filter(|_| tries > 0).unwrap_or(request.key);
                last = self.children[index].route(cx, Request { key, ..request }).await;
                let failure = last.outcome.failure();
                self.order.note(index, failure.is_some());
                let class = request.op.class();
                if !failure.is_some_and(|failure| self.errors.contain(class, failure)) {
                    break;
                }
            }
            last
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}

/// The key with the tag, if it is not too long with it.
fn tagged(key: &[u8]) -> Option<Vec<u8>> {
    let mut tagged = key.to_vec();
    if memchr::memmem::find(key, HASH_STOP).is_none() {
        tagged.extend_from_slice(HASH_STOP);
    }
    tagged.extend_from_slice(b":failover=1");
    (tagged.len() <= proto::KEY_BYTES_MAX).then_some(tagged)
}
