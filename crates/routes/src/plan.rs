//! Trees from a configuration: checked and resolved once, then built by each worker with its own
//! connections.
//!
//! The methods of [`Builder`] are in four files, by the kind of route that they build. Routes
//! contain routes, so each method may call any other. Those of [`Plan`] are in four files, too:
//! addresses of servers, parts of the predecessor and runtime variables have their own.

mod addresses;
mod copies_and_limits;
mod failover;
mod flags;
mod peers;
mod pool;
mod succession;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use routeconf::Variables;
use routeconf::ast::{self, Config, Entry, Member, RouteId, Security, ServerAddress};

use crate::core::Tree;
use crate::deletes::Target;
use crate::route::{
    AllAsyncRoute, AllFastestRoute, AllInitialRoute, AllMajorityRoute, AllSyncRoute, Bucket,
    Buckets, Change, ErrorRoute, HostIdRoute, Keys, LeasePairs, ListenerRoute, MigrateRoute,
    MissFailoverRoute, ModifyExptimeRoute, ModifyKeyRoute, NullRoute, OperationSelectorRoute,
    OriginalClientHashRoute, PrefixSelectorRoute, RandomRoute, RateLimitRoute, RootRoute, RouteRef,
    RoutingGroupRoute, Selecting, Shadow, ShadowRoute,
};
use upstream::{Address, DestinationId, PoolCounts, Protocol, Settings, Tls, Upstream};

pub use flags::{BigValues, Distances, TreeFlags};
pub use variables::VariableError;

/// A configuration whose routes are all known. Servers' names are looked up elsewhere.
#[derive(Debug)]
pub struct Plan {
    config: Config,
    settings: Settings,
    addresses: BTreeMap<String, Address>,
    /// Every address of a server's name, by server.
    candidates: BTreeMap<String, BTreeSet<SocketAddr>>,
    /// The reason why a server's name was not found, with its place, by server.
    not_found: BTreeMap<String, String>,
    flags: TreeFlags,
    /// The values of `weights_rv`, `index_range_rv` and `key_fraction_range_rv`.
    variables: Variables,
    /// Pools with statistics.
    counted: BTreeMap<String, Arc<PoolCounts>>,
    /// Leases of failovers, by the name of the pairing. The trees of all workers share them.
    pairs: BTreeMap<String, Arc<LeasePairs>>,
    /// The remainders of rate limits, by the number of their route. The trees of all workers share
    /// them.
    buckets: Mutex<BTreeMap<usize, Arc<Buckets>>>,
}

impl Plan {
    /// Checks `config`. `settings` apply to servers where their pool sets nothing. A server whose
    /// name is not found ([`Self::set_addresses`]) counts as unreachable.
    ///
    /// # Errors
    ///
    /// Everything that this host lacks or does not support, each with its place.
    pub fn new(config: Config, settings: Settings, flags: TreeFlags) -> Result<Self, Vec<String>> {
        let mut flaws = Vec::new();
        let (mut addresses, mut not_found) = (BTreeMap::new(), BTreeMap::new());
        for pool in &config.pools {
            for member in &pool.members {
                let Member::Server(server) = member else { continue };
                let place = config.files.place(server.at);
                if let Some(what) = unusable(server, &settings) {
                    flaws.push(format!("{place}: {}: {what}", server.address));
                }
                let name = server.address.to_string();
                let address = addresses::written(&server.address).unwrap_or_else(|| {
                    let why = "its name has not been looked up";
                    not_found.insert(name.clone(), format!("{place}: {name}: {why}"));
                    Address::NotFound(name.clone())
                });
                addresses.insert(name, address);
            }
        }
        if flaws.is_empty() {
            let pairs = failover::pairs(&config);
            let variables = Variables::default();
            let (counted, buckets) = (BTreeMap::new(), Mutex::default());
            let candidates = BTreeMap::new();
            Ok(Self {
                config,
                settings,
                addresses,
                candidates,
                not_found,
                flags,
                variables,
                counted,
                pairs,
                buckets,
            })
        } else {
            Err(flaws)
        }
    }

    /// The servers whose names are not found, each with its place and the reason.
    #[must_use]
    pub fn not_found(&self) -> Vec<String> {
        self.not_found.values().cloned().collect()
    }

    /// Counts the outcomes of requests to the pools of these names.
    pub fn count_pools(&mut self, counted: BTreeMap<String, Arc<PoolCounts>>) {
        self.counted = counted;
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The servers to which kept deletes may be replayed.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let mut targets: BTreeMap<String, Target> = BTreeMap::new();
        let pools = self.config.pools.iter();
        let pools: Vec<_> = pools.map(|pool| (pool, servers_by_name(pool))).collect();
        for (pool, servers) in &pools {
            let names: Vec<&String> = servers.keys().collect();
            for (name, server) in servers {
                let Some(address) = self.addresses.get(name).cloned() else { continue };
                let (name, settings) = (name.clone(), self.settings_of(pool, server));
                let mut peers = peers::in_pool(&name, &names);
                peers.extend(targets.remove(&name).into_iter().flat_map(|other| other.peers));
                peers.sort();
                peers.dedup();
                targets.insert(name.clone(), Target { name, address, settings, peers });
            }
        }
        let names = pools.iter().map(|(pool, servers)| (&*pool.name, servers.keys().collect()));
        let names: Vec<peers::Pool<'_>> = names.collect();
        for target in targets.values_mut().filter(|target| target.peers.is_empty()) {
            target.peers = peers::of_lone(&target.name, &names, &self.addresses);
        }
        targets.into_values().collect()
    }

    /// The servers of a pool: the name by which clients place keys (that of `hostnames`, else the
    /// host as written) and the address; `None` without such a pool.
    #[must_use]
    pub fn servers_of(&self, pool: &str) -> Option<Vec<(String, Address)>> {
        let pool = self.config.pools.iter().find(|one| one.name == pool)?;
        let servers = pool.members.iter().filter_map(|member| match member {
            Member::Server(server) => {
                let written = server.address.to_string();
                let address = self.addresses.get(&written)?.clone();
                let name = match (&server.name, &server.address) {
                    (Some(name), _) => name.clone(),
                    (None, ServerAddress::Tcp { host, .. }) => host.clone(),
                    (None, ServerAddress::Unix(_)) => written,
                };
                Some((name, address))
            }
            Member::Route(_) => None,
        });
        let mut servers: Vec<_> = servers.collect();
        // With `additional_fanout`, a server has several consecutive places.
        servers.dedup();
        Some(servers)
    }

    /// The settings for a server of a pool.
    fn settings_of(&self, pool: &ast::Pool, server: &ast::Server) -> Settings {
        let mut settings = self.settings.clone();
        if server.security == Security::Plain {
            settings.tls = None;
        } else {
            settings.server_name = server_name(server, &self.settings).to_owned();
        }
        if server.protocol == ast::Protocol::Binary {
            settings.protocol = Protocol::Binary;
        }
        if settings.tls.is_some()
            || settings.login.is_some()
            || settings.protocol == Protocol::Binary
        {
            // Datagrams have no encryption and no login, and carry only the text protocol.
            settings.udp_gets = None;
        }
        if let Some(ms) = pool.server_timeout_ms {
            settings.timeout = Duration::from_millis(ms);
            settings.connect_timeout = settings.timeout;
        }
        if let Some(ms) = pool.connect_timeout_ms {
            settings.connect_timeout = Duration::from_millis(ms);
        }
        if let Some(timeout) = self.flags.distances.timeout(pool, &self.config.default_route) {
            (settings.timeout, settings.connect_timeout) = (timeout, timeout);
        }
        settings
    }

    /// Builds the tree with the servers of `upstream`.
    pub fn tree(&self, upstream: &mut Upstream) -> Tree {
        let mut builder =
            Builder { plan: self, upstream, routes: Vec::new(), destinations: Vec::new() };
        for handle in &self.config.handles {
            let route = builder.route(&handle.route);
            builder.routes.push(route);
        }
        builder.track();
        let root = builder.root();
        let keeps_prefixes = self.config.pools.iter().any(|pool| pool.keep_routing_prefix);
        Tree { root, destinations: builder.destinations, keeps_prefixes }
    }
}

/// The servers of a pool, each once.
fn servers_by_name(pool: &ast::Pool) -> BTreeMap<String, &ast::Server> {
    let servers = pool.members.iter().filter_map(|member| match member {
        Member::Server(server) => Some((server.address.to_string(), server)),
        Member::Route(_) => None,
    });
    servers.collect()
}

/// The reason why a server cannot be used as the configuration says.
fn unusable(server: &ast::Server, settings: &Settings) -> Option<String> {
    match server.security {
        Security::Plain => None,
        Security::Tls | Security::TlsToPlain if settings.tls.is_none() => {
            Some("TLS is not set up here (--pem-ca-path)".to_owned())
        }
        _ if !Tls::is_name(server_name(server, settings)) => Some(
            "a certificate cannot have this name; 'hostnames' of the pool gives another".to_owned(),
        ),
        Security::Tls | Security::TlsToPlain => None,
    }
}

/// The name that a server's certificate must have: that of `hostnames`, else that of all servers,
/// if set, else its host's.
fn server_name<'a>(server: &'a ast::Server, settings: &'a Settings) -> &'a str {
    match (&server.name, &server.address) {
        (Some(name), _) => name,
        _ if !settings.server_name.is_empty() => &settings.server_name,
        (None, ServerAddress::Tcp { host, .. }) => host,
        (None, ServerAddress::Unix(_)) => "localhost",
    }
}

struct Builder<'a> {
    plan: &'a Plan,
    upstream: &'a mut Upstream,
    /// By [`RouteId`].
    routes: Vec<RouteRef>,
    destinations: Vec<DestinationId>,
}

impl Builder<'_> {
    fn get(&self, id: RouteId) -> RouteRef {
        Arc::clone(&self.routes[id.index()])
    }

    fn all(&self, ids: &[RouteId]) -> Vec<RouteRef> {
        ids.iter().map(|id| self.get(*id)).collect()
    }

    /// A route over children. Without children it swallows requests, as in mcrouter.
    fn among(&self, ids: &[RouteId], make: impl FnOnce(Vec<RouteRef>) -> RouteRef) -> RouteRef {
        if ids.is_empty() { Arc::new(NullRoute) } else { make(self.all(ids)) }
    }

    fn or_null(&self, id: Option<RouteId>) -> RouteRef {
        id.map_or_else(|| -> RouteRef { Arc::new(NullRoute) }, |id| self.get(id))
    }

    fn root(&self) -> RouteRef {
        let flags = &self.plan.flags;
        let listeners = self.plan.config.listeners.iter();
        let mut listeners = listeners.map(|listener| flags.around(self.listener(&listener.entry)));
        match (listeners.len(), listeners.next()) {
            (1, Some(listener)) => listener,
            (_, None) => Arc::new(NullRoute),
            (_, Some(first)) => {
                let children = std::iter::once(first).chain(listeners).collect();
                Arc::new(Selecting(ListenerRoute { children }))
            }
        }
    }

    fn listener(&self, entry: &Entry) -> RouteRef {
        match entry {
            Entry::Plain(id) => self.get(*id),
            Entry::Prefixes(prefixes) => {
                let routes = prefixes
                    .iter()
                    .map(|entry| (entry.prefix.clone().into_bytes(), self.get(entry.route)));
                let default = self.plan.config.default_route.as_bytes();
                let invalid_to_default = self.plan.flags.send_invalid_route_to_default;
                Arc::new(RootRoute::new(routes.collect(), default, invalid_to_default))
            }
        }
    }

    /// The route of a handle, whose children are all built.
    fn route(&mut self, route: &ast::Route) -> RouteRef {
        use ast::Route as R;
        match route {
            R::AllAsync(ids) => Arc::new(AllAsyncRoute { children: self.all(ids) }),
            R::AllFastest(ids) => Arc::new(AllFastestRoute { children: self.all(ids) }),
            R::AllInitial(ids) => Arc::new(AllInitialRoute { children: self.all(ids) }),
            R::AllMajority(ids) => Arc::new(AllMajorityRoute { children: self.all(ids) }),
            R::AllSync(ids) => Arc::new(AllSyncRoute { children: self.all(ids) }),
            R::Destination { pool, index } => self.destination(*pool, *index as usize, None),
            R::Error { result, message } => {
                Arc::new(ErrorRoute { failure: *result, message: message.clone() })
            }
            R::Failover(failover) => self.failover(failover),
            R::Hash { children, hash } => self.hash(self.all(children), hash, &[], "children"),
            R::HostId { children, salt } => self.among(children, |children| {
                Arc::new(Selecting(HostIdRoute { children, salt: salt.clone() }))
            }),
            R::Migrate { from, to, start_time, interval } => Arc::new(MigrateRoute {
                from: self.get(*from),
                to: self.get(*to),
                start_secs: *start_time,
                interval_secs: *interval,
            }),
            R::MissFailover { children, return_best_on_error } => Arc::new(MissFailoverRoute {
                children: self.all(children),
                returns_best: *return_best_on_error,
            }),
            R::ModifyExptime { target, exptime, action } => Arc::new(ModifyExptimeRoute {
                target: self.get(*target),
                change: match action {
                    ast::ExptimeAction::Min => Change::Min(*exptime),
                    ast::ExptimeAction::Set => Change::Set(*exptime),
                },
            }),
            R::ModifyKey(modify) => Arc::new(ModifyKeyRoute {
                target: self.get(modify.target),
                change: modify.change.clone(),
            }),
            R::OriginalClientHash { children, offset } => self.among(children, |children| {
                Arc::new(Selecting(OriginalClientHashRoute { children, offset: *offset }))
            }),
            R::Pool(pool) => self.pool(pool),
            R::Random(ids) => match self.ejecting_pool(ids) {
                Some(pool) => self.ejecting(pool, None),
                None => self.among(ids, |children| Arc::new(Selecting(RandomRoute { children }))),
            },
            R::RateLimit { target, rates, fallback } => {
                let fallback = fallback.map(|id| self.get(id));
                self.rate_limit(self.get(*target), rates, fallback)
            }
            R::Shadow { child, index, shadows } => self.shadowed(self.get(*child), *index, shadows),
            other => self.by_request(other),
        }
    }

    /// The routes that choose by the kind of request.
    fn by_request(&self, route: &ast::Route) -> RouteRef {
        use ast::Route as R;
        match route {
            R::OperationSelector { default, policies } => {
                let policies = policies.iter().map(|(op, id)| (*op, self.get(*id)));
                let policies = policies.collect();
                let default = self.or_null(*default);
                Arc::new(Selecting(OperationSelectorRoute { policies, default }))
            }
            R::PrefixSelector { policies, wildcard } => {
                let policies = policies
                    .iter()
                    .map(|(prefix, id)| (prefix.clone().into_bytes(), self.get(*id)));
                let wildcard = self.or_null(*wildcard);
                Arc::new(Selecting(PrefixSelectorRoute::new(policies.collect(), wildcard)))
            }
            R::RoutingGroup { default, policies } => {
                let policies = policies.iter().map(|(class, id)| (*class, self.get(*id)));
                let policies = policies.collect();
                let default = self.or_null(*default);
                Arc::new(Selecting(RoutingGroupRoute { policies, default }))
            }
            other => self.copies_and_limits(other),
        }
    }

    /// The range of keys that a variable sets instead of the configuration.
    fn fraction_of(&self, shadow: &ast::Shadow) -> Option<ast::ShadowKeys> {
        let numbers = self.plan.variables.get(shadow.key_fraction_range_rv.as_deref()?)?;
        match numbers {
            [start, end] if start <= end => Some(ast::ShadowKeys::Fraction(*start, *end)),
            _ => None,
        }
    }

    /// Returns true if a shadow applies to this place of its pool, by a variable or the
    /// configuration.
    fn shadows_place(&self, shadow: &ast::Shadow, index: u32) -> bool {
        let variable = shadow.index_range_rv.as_deref();
        match variable.and_then(|name| self.plan.variables.get(name)) {
            Some([first, last]) if first <= last => (*first..=*last).contains(&f64::from(index)),
            _ => shadow.index_range.is_none_or(|(first, last)| (first..=last).contains(&index)),
        }
    }

    fn shadowed(&self, child: RouteRef, index: u32, shadows: &[ast::Shadow]) -> RouteRef {
        let here = shadows.iter().filter(|shadow| self.shadows_place(shadow, index));
        let shadows: Vec<_> = here
            .map(|shadow| Shadow {
                target: self.get(shadow.target),
                keys: match self.fraction_of(shadow).as_ref().unwrap_or(&shadow.keys) {
                    ast::ShadowKeys::Fraction(start, end) => Keys::Fraction(*start, *end),
                    ast::ShadowKeys::Keys(keys) => {
                        Keys::Listed(keys.iter().map(|key| key.clone().into_bytes()).collect())
                    }
                    ast::ShadowKeys::Requests(share) => Keys::Requests(*share),
                },
            })
            .collect();
        if shadows.is_empty() { child } else { Arc::new(ShadowRoute { child, shadows }) }
    }

    /// The limits of the route under construction.
    fn rate_limit(
        &self,
        target: RouteRef,
        rates: &ast::Rates,
        fallback: Option<RouteRef>,
    ) -> RouteRef {
        let workers = f64::from(self.plan.flags.workers.max(1));
        let bucket = |limit: Option<ast::RateLimit>| {
            limit.map(|limit| Bucket::new(limit.rate * workers, limit.burst * workers))
        };
        let new = || {
            let (gets, sets) = (bucket(rates.gets), bucket(rates.sets));
            Arc::new(Buckets { gets, sets, deletes: bucket(rates.deletes) })
        };
        let mut all = self.plan.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = Arc::clone(all.entry(self.routes.len()).or_insert_with(new));
        Arc::new(RateLimitRoute { target, buckets, fallback })
    }
}
