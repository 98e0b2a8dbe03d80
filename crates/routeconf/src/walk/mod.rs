//! The path of a request through the tree, without a server: the output of `holdall explain`.

mod step;

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::OnceLock;

use hashing::Placement;
use hashing::key::{KeyParts, before_hash_stop};

use crate::ast::{Command, Config, Hash, Listener, Member, Pool, PoolId, Route, RouteId};

/// Maximum number of steps in one answer; walks of routes with many uses could take forever.
const STEPS_MAX: u32 = 20_000;

/// A request, with its client and the router that receives it.
#[derive(Clone, Copy, Debug)]
pub struct Question<'k> {
    /// The command.
    pub operation: Command,
    /// The key as the client sends it.
    pub key: &'k [u8],
    /// The router's host id.
    pub host_id: u32,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// Unix seconds.
    pub now_secs: u64,
}

/// The condition of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepCondition {
    /// The reply comes from this route.
    Reply,
    /// It gets the request at the same time, and is waited for.
    Also,
    /// It gets the request, but is not waited for.
    Background,
    /// If the previous route failed.
    IfFailed,
    /// If the previous route missed.
    IfMissed,
    /// If the previous route missed or failed.
    IfMissedOrFailed,
    /// For some requests, at random or by state.
    Sometimes,
}

/// One route on the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The route.
    pub route: RouteId,
    /// The condition for this step.
    pub when: StepCondition,
    /// The key at this route.
    pub key: Vec<u8>,
    /// Bytes of the key that are hashed from here on, if a route has set them. Otherwise, the part
    /// before the hash stop.
    pub hashed: Option<usize>,
    /// The reason for this path, in words; may be empty.
    pub note: String,
    /// The server, if the path ends here.
    pub server: Option<(PoolId, u32)>,
    /// The steps that follow.
    pub next: Vec<Self>,
}

impl Step {
    /// The part of the key by which routes choose.
    fn routed_key(&self) -> &[u8] {
        match self.hashed {
            Some(len) => self.key.get(..len).unwrap_or(&self.key),
            None => before_hash_stop(&self.key),
        }
    }
}

/// Walks over one configuration, and makes its placements on demand.
#[derive(Debug)]
pub struct Walker<'c> {
    config: &'c Config,
    placements: Vec<OnceLock<Option<Placement>>>,
    steps: Cell<u32>,
}

impl<'c> Walker<'c> {
    /// A walker of this configuration.
    #[must_use]
    pub fn new(config: &'c Config) -> Self {
        let placements = config.handles.iter().map(|_| OnceLock::new()).collect();
        Self { config, placements, steps: Cell::new(0) }
    }

    /// All effects of the request behind this listener. Empty if the key's prefix has no route.
    #[must_use]
    pub fn walk(&self, listener: &Listener, question: &Question<'_>) -> Vec<Step> {
        self.steps.set(0);
        let prefixed = matches!(listener.entry, crate::ast::Entry::Prefixes(_));
        let parts = KeyParts::new(question.key);
        let (prefix, key) =
            if prefixed { (parts.prefix, parts.without_prefix) } else { (&b""[..], question.key) };
        let targets = self.config.targets(listener, prefix).into_iter().enumerate();
        let steps = targets.map(|(place, route)| {
            let when = if place == 0 { StepCondition::Reply } else { StepCondition::Background };
            self.step(route, when, key, None, question)
        });
        steps.collect()
    }

    /// True if the last walk was cut short.
    #[must_use]
    pub fn was_cut(&self) -> bool {
        self.steps.get() >= STEPS_MAX
    }

    /// The server whose reply the client gets without failures, if only the request decides that.
    #[must_use]
    pub fn server(&self, listener: &Listener, question: &Question<'_>) -> Option<(PoolId, u32)> {
        let mut steps = self.walk(listener, question);
        loop {
            let step = steps.into_iter().find(|step| step.when == StepCondition::Reply)?;
            if step.server.is_some() {
                return step.server;
            }
            steps = step.next;
        }
    }

    /// The child among `children` that a route chooses by the key.
    fn pick(&self, step: &Step, hash: &Hash, children: usize, pool: Option<&Pool>) -> Option<u32> {
        let place = self.placements.get(step.route.index())?.get_or_init(|| {
            let addresses = pool.map(Pool::hosts).unwrap_or_default();
            hash.placement(children, &addresses).ok()
        });
        place.as_ref().map(|place| match step.hashed {
            Some(_) => hash.pick_part(place, step.routed_key()),
            None => hash.pick(place, &step.key),
        })
    }

    /// The name of a server, or of the route that replaces it.
    #[must_use]
    pub fn member_name(&self, (pool, index): (PoolId, u32)) -> String {
        match self.config.pool(pool).members.get(index as usize) {
            Some(Member::Server(server)) => server.address.to_string(),
            Some(Member::Route(route)) => self.config.handle(*route).route.name().to_owned(),
            None => "nobody".to_owned(),
        }
    }

    fn step(
        &self,
        id: RouteId,
        when: StepCondition,
        key: &[u8],
        hashed: Option<usize>,
        question: &Question<'_>,
    ) -> Step {
        let mut step = Step {
            route: id,
            when,
            key: key.to_vec(),
            hashed,
            note: String::new(),
            server: None,
            next: Vec::new(),
        };
        let steps = self.steps.get();
        if steps >= STEPS_MAX {
            "cut short here".clone_into(&mut step.note);
            return step;
        }
        self.steps.set(steps + 1);
        let route: &Route = &self.config.handle(id).route;
        self.fill(route, &mut step, question);
        step
    }
}
