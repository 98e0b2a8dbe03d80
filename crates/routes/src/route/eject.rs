//! twemproxy's pools with `auto_eject_hosts`: a hash over the servers that are in use.

use std::sync::Arc;

use hashing::Placement;
use routeconf::ast::{Hash, HashFunction};

use super::{ErrorRoute, RouteRef, Select};
use crate::context::Context;
use upstream::SendRefCell;
use upstream::{Ejection, Failure, Request};

/// Hashes over the servers that are not ejected.
#[derive(Debug)]
pub struct EjectRoute {
    children: Vec<RouteRef>,
    /// `None`: a random choice.
    hash: Option<Hash>,
    ejection: Arc<Ejection>,
    live: SendRefCell<Live>,
    nobody: RouteRef,
    label: String,
}

/// The servers in use, and the distribution of keys over them.
#[derive(Debug)]
struct Live {
    places: Vec<usize>,
    placement: Option<Placement>,
}

impl EjectRoute {
    /// Chooses one of `children` by this hash of twemproxy's; without one, at random.
    pub(crate) fn new(
        children: Vec<RouteRef>,
        hash: Option<Hash>,
        ejection: Arc<Ejection>,
        label: String,
    ) -> Self {
        let live = live(hash.as_ref(), (0..children.len()).collect());
        let message = "every server of the pool is ejected".to_owned();
        let nobody = Arc::new(ErrorRoute { failure: Failure::ConnectError, message });
        Self { children, hash, ejection, live: SendRefCell::new(live), nobody, label }
    }
}

impl Select for EjectRoute {
    fn name(&self) -> String {
        format!(
            "eject|{}|{} of {}",
            self.label,
            self.live.borrow().places.len(),
            self.children.len()
        )
    }

    fn select(&self, cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let now_us = cx.now_us();
        if self.ejection.is_due(now_us) {
            *self.live.borrow_mut() = live(self.hash.as_ref(), self.ejection.live(now_us));
        }
        let live = self.live.borrow();
        let chosen = match (&live.placement, &self.hash) {
            (Some(placement), Some(hash)) => hash.pick(placement, request.key) as usize,
            (_, Some(_)) => usize::MAX,
            (_, None) => cx.random_below(live.places.len()),
        };
        let place = live.places.get(chosen);
        place.and_then(|place| self.children.get(*place)).unwrap_or(&self.nobody)
    }
}

fn live(hash: Option<&Hash>, places: Vec<usize>) -> Live {
    let placement = hash.and_then(|hash| among(hash, &places).placement(places.len(), &[]).ok());
    Live { places, placement }
}

/// The hash over only the servers of these places.
fn among(hash: &Hash, places: &[usize]) -> Hash {
    let of = |servers: &[(String, u32)]| {
        places.iter().filter_map(|place| servers.get(*place).cloned()).collect()
    };
    let function = match &hash.function {
        HashFunction::TwemproxyKetama { hash, servers } => {
            HashFunction::TwemproxyKetama { hash: *hash, servers: of(servers) }
        }
        HashFunction::TwemproxyModula { hash, servers } => {
            HashFunction::TwemproxyModula { hash: *hash, servers: of(servers) }
        }
        other => other.clone(),
    };
    Hash { function, ..hash.clone() }
}
