//! The order in which a failover tries its children: mcrouter's `failover_policy`, and the choice
//! of `LatestRoute`.

use std::sync::OnceLock;

use hashing::{Placement, rendezvous_order};

use crate::context::Context;
use routeconf::select::salted;
use upstream::SendCell;
use upstream::{Event, Failure, Request};

/// The order of the tries. The first child is always first.
#[derive(Debug)]
pub enum Order {
    /// `DeterministicOrderPolicy`: the hash with a changing salt chooses each next child, none
    /// twice.
    Deterministic(Deterministic),
    /// In the order of the configuration.
    InOrder,
    /// `LatestRoute`: some children, the first included, by the number of this host.
    Latest(Latest),
    /// Those with the fewest recent failures first; counts the consecutive failures of each.
    LeastFailures {
        /// Maximum number of children tried.
        tries_max: usize,
        /// For each child.
        failures: Vec<SendCell<u32>>,
    },
    /// `RendezvousPolicy`: by descending score of their tags; the first child has none.
    Rendezvous {
        /// Maximum number of children tried.
        tries_max: usize,
        /// One for each child except the first.
        tags: Vec<String>,
    },
}

/// See [`Order::Deterministic`].
#[derive(Debug)]
pub struct Deterministic {
    /// Maximum number of children tried.
    pub tries_max: usize,
    /// Maximum number of failed tries. The first counts; one of a knocked-out server does not.
    pub failures_max: usize,
    /// Failures that do not count towards it.
    pub excluded: Vec<Failure>,
    /// The place that the first child chose among its children counts as tried, since the others
    /// have the same servers.
    pub skips_chosen: bool,
    /// The distribution over all children, including the first.
    pub placement: Placement,
    /// The failure domain of each child: children of one domain fail together. Empty: no domains.
    pub domains: Vec<Option<String>>,
}

/// See [`Order::Latest`].
#[derive(Debug)]
pub struct Latest {
    /// The number of children in use.
    pub count: usize,
    /// One for each child, 0 to 1.
    pub weights: Vec<f64>,
    /// Hashed with the number of the host.
    pub salt: String,
    /// Makes each worker choose independently.
    pub by_worker: bool,
    /// The choice, once made.
    pub chosen: OnceLock<Vec<usize>>,
}

/// Hashes of one step before it accepts a place that was tried already, or that shares a failure
/// domain with one (mcrouter).
const HASHES_MAX: u32 = 100;

/// The number of these that avoid the failure domains of failed children.
const HASHES_APART: u32 = 75;

/// The tries of one request.
#[derive(Debug)]
pub(super) struct Tries<'a> {
    order: &'a Order,
    children: usize,
    /// Children in the order of the tries, as far as it is known at the start.
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
    /// The counters of requests that went to another child, and of those that failed, by policy.
    /// mcrouter's statistics have no names for `LatestRoute`.
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

    /// Records the place that the first child chose among its children.
    pub(super) fn first_chose(&mut self, place: Option<u32>) {
        self.chosen = place.map(|place| place as usize);
    }

    /// Records the result of the last try. Returns false if no other may follow.
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
