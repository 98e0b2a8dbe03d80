//! In which order the children of a failover are tried: mcrouter's `failover_policy`, and the
//! choice of `LatestRoute`.

use std::sync::OnceLock;

use hashing::{Placement, rendezvous_order};

use super::host_id::salted;
use crate::context::Context;
use upstream::SendCell;
use upstream::{Event, Failure, Request};

/// The first child is tried first; then they differ.
#[derive(Debug)]
pub enum Order {
    /// `DeterministicOrderPolicy`: the hash with changing salt chooses each next one, and none
    /// twice.
    Deterministic(Deterministic),
    /// As they stand.
    InOrder,
    /// `LatestRoute`: some of them, by the number of this host; the first one too.
    Latest(Latest),
    /// Those that failed least of late first; the failures in a row of each.
    LeastFailures {
        /// Children that are tried, at the most.
        tries_max: usize,
        /// For each child.
        failures: Vec<SendCell<u32>>,
    },
    /// `RendezvousPolicy`: by descending score of their tags; the first child has none.
    Rendezvous {
        /// Children that are tried, at the most.
        tries_max: usize,
        /// One for each child but the first.
        tags: Vec<String>,
    },
}

/// See [`Order::Deterministic`].
#[derive(Debug)]
pub struct Deterministic {
    /// Children that are tried, at the most.
    pub tries_max: usize,
    /// Tries that may fail, at the most; the first counts, one of a knocked-out server does not.
    pub failures_max: usize,
    /// Failures that do not count for that.
    pub excluded: Vec<Failure>,
    /// The place that the first child chose among its own counts as tried: they are the others'
    /// servers.
    pub skips_chosen: bool,
    /// Over all children, the first among them.
    pub placement: Placement,
    /// The failure domain of each child: those of one fail together. Empty: none do.
    pub domains: Vec<Option<String>>,
}

/// See [`Order::Latest`].
#[derive(Debug)]
pub struct Latest {
    /// The number of children that are used.
    pub count: usize,
    /// One for each child, 0 to 1.
    pub weights: Vec<f64>,
    /// Hashed with the number of the host.
    pub salt: String,
    /// Each worker chooses for itself.
    pub by_worker: bool,
    /// The choice, once it is made.
    pub chosen: OnceLock<Vec<usize>>,
}

/// Hashes of one step before a place is taken that was tried already, or fails together with one
/// that was (mcrouter).
const HASHES_MAX: u32 = 100;

/// Of these, how many avoid the failure domains of those that failed.
const HASHES_APART: u32 = 75;

/// The tries of one request.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    order: &'a Order,
    children: usize,
    /// Children in the order in which they are tried, as far as that is known at the begin.
    planned: Vec<usize>,
    tried: usize,
    failures: usize,
    salt: u32,
    used: Vec<bool>,
    failed_domains: Vec<&'a str>,
    /// The place that the first child chose.
    chosen: Option<usize>,
}

impl Order {
    /// What counts requests that went on to another child, and those of them that failed, by
    /// policy; mcrouter's statistics have no names for `LatestRoute`.
    pub(super) const fn events(&self) -> (Option<Event>, Option<Event>) {
        let (tried, failed) = match self {
            Self::InOrder => (Event::FailoverInOrder, Event::FailoverInOrderFailed),
            Self::LeastFailures { .. } => {
                (Event::FailoverLeastFailures, Event::FailoverLeastFailuresFailed)
            }
            Self::Deterministic(_) => {
                (Event::FailoverDeterministic, Event::FailoverDeterministicFailed)
            }
            Self::Rendezvous { .. } => (Event::FailoverRendezvous, Event::FailoverRendezvousFailed),
            Self::Latest(_) => return (None, None),
        };
        (Some(tried), Some(failed))
    }

    pub(super) fn tries<'a>(&'a self, children: usize, cx: &Context) -> Tries<'a> {
        let mut planned: Vec<usize> = Vec::new();
        match self {
            Self::InOrder => planned.extend(0..children),
            Self::Latest(latest) => planned.extend(latest.chosen(cx)),
            Self::LeastFailures { tries_max, failures } => {
                planned.extend(0..children);
                if let Some(others) = planned.get_mut(1..) {
                    others.sort_by_key(|index| failures.get(*index).map_or(0, SendCell::get));
                }
                planned.truncate(*tries_max);
            }
            Self::Deterministic(_) | Self::Rendezvous { .. } => planned.push(0),
        }
        Tries {
            order: self,
            children,
            planned,
            tried: 0,
            failures: 0,
            salt: 1,
            used: Vec::new(),
            failed_domains: Vec::new(),
            chosen: None,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Deterministic(_) => "failover|deterministicorder",
            Self::InOrder => "failover",
            Self::Latest(_) => "failover|latest",
            Self::LeastFailures { .. } => "failover|leastfailures",
            Self::Rendezvous { .. } => "failover|rendezvous",
        }
    }
}

impl Latest {
    fn chosen(&self, cx: &Context) -> &[usize] {
        self.chosen.get_or_init(|| {
            let mut left: Vec<(usize, f64)> = self.weights.iter().copied().enumerate().collect();
            let worker = if self.by_worker { cx.worker() } else { 0 };
            let mut chosen = Vec::new();
            while chosen.len() < self.count && !left.is_empty() {
                let salt = format!("{}:{worker}:{}", self.salt, chosen.len());
                let weights: Vec<f64> = left.iter().map(|(_, weight)| *weight).collect();
                let key = salted(cx.host_id(), &salt).to_string();
                let place =
                    Placement::weighted_ch3(&weights).map(|place| place.pick(key.as_bytes()));
                let place = place.map_or(0, |place| place as usize);
                chosen.push(left.swap_remove(place.min(left.len() - 1)).0);
            }
            chosen
        })
    }
}

impl<'a> Tries<'a> {
    /// The next child to try.
    pub(super) fn next(&mut self, request: &Request<'_>) -> Option<usize> {
        if self.tried == 1 {
            match self.order {
                Order::Rendezvous { tries_max, tags } => self.plan(*tries_max, tags, request),
                Order::Deterministic(order) => self.begin(order),
                Order::InOrder | Order::Latest(_) | Order::LeastFailures { .. } => {}
            }
        }
        let next = match self.order {
            Order::Deterministic(order) if self.tried > 0 => self.hashed(order, request)?,
            _ => self.planned.get(self.tried).copied()?,
        };
        self.tried += 1;
        Some(next)
    }

    /// The first child has chosen this place among its own children.
    pub(super) fn first_chose(&mut self, place: Option<u32>) {
        self.chosen = place.map(|place| place as usize);
    }

    /// What came of the last try. False when no other is to follow.
    pub(super) fn note(&mut self, child: usize, failure: Option<Failure>) -> bool {
        match self.order {
            Order::LeastFailures { failures, .. } => {
                if let Some(count) = failures.get(child) {
                    count.set(if failure.is_some() { count.get().saturating_add(1) } else { 0 });
                }
                true
            }
            Order::Deterministic(order) => {
                let place =
                    if child == 0 { self.chosen.map(|place| place + 1) } else { Some(child) };
                let domain = place.and_then(|place| order.domains.get(place));
                self.failed_domains.extend(domain.and_then(Option::as_deref));
                let counts = failure.is_some_and(|failure| {
                    failure != Failure::Tko && !order.excluded.contains(&failure)
                });
                self.failures += usize::from(counts);
                self.failures < order.failures_max
            }
            Order::InOrder | Order::Latest(_) | Order::Rendezvous { .. } => true,
        }
    }

    fn plan(&mut self, tries_max: usize, tags: &[String], request: &Request<'_>) {
        let first = self.chosen.unwrap_or(0);
        let order = rendezvous_order(request.routed_key(), tags).into_iter();
        let others = order.map(|place| place as usize).filter(|place| *place != first);
        self.planned.extend(others.map(|place| place + 1).filter(|child| *child < self.children));
        self.planned.truncate(tries_max);
    }

    fn begin(&mut self, order: &Deterministic) {
        self.used = vec![false; self.children];
        let chosen = self.chosen.filter(|_| order.skips_chosen).map(|place| place + 1);
        for place in std::iter::once(0).chain(chosen) {
            if let Some(used) = self.used.get_mut(place) {
                *used = true;
            }
        }
    }

    fn hashed(&mut self, order: &'a Deterministic, request: &Request<'_>) -> Option<usize> {
        if self.tried >= order.tries_max.min(self.children) {
            return None;
        }
        for hashes in 0..=HASHES_MAX {
            self.salt += 1;
            let salt = self.salt.to_string();
            let child = order.placement.pick_salted(request.routed_key(), salt.as_bytes()) as usize;
            let domain = order.domains.get(child).and_then(Option::as_deref);
            let fails_too = hashes <= HASHES_APART
                && domain.is_some_and(|domain| self.failed_domains.contains(&domain));
            if (!*self.used.get(child)? && !fails_too) || hashes == HASHES_MAX {
                *self.used.get_mut(child)? = true;
                return Some(child);
            }
        }
        None
    }
}
