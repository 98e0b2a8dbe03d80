//! The steps of a request through each route handle.

use hashing::spooky_hash32;

use super::{Question, Step, StepCondition, Walker};
use crate::ast::{
    Command, CommandClass, Failover, FailoverPolicy, Hash, HashFunction, Member, PoolId, PoolRoute,
    Route, RouteId, Shadow, ShadowKeys, ShardSplit, ShardSplits,
};
use crate::select::{self, Replicas};

/// The key under a host's current name of its shard, `None` if that is the plain one; and the
/// choice in words.
fn own_shard_name(
    split: &ShardSplit,
    key: &[u8],
    question: &Question<'_>,
) -> (Option<Vec<u8>>, String) {
    let host_id = question.host_id;
    let size = select::split_size(split, host_id, question.now_secs);
    let own = host_id.checked_rem(size).unwrap_or(0);
    let note = format!("shard name {own} of {size} by host id {host_id}");
    (select::shard_name(key, own), note)
}

/// The hash function in words.
fn by(hash: &Hash) -> String {
    let name = hash.function.name();
    match &hash.function {
        HashFunction::WeightedCh3Rv { variable, .. } => {
            format!("by {name} (without the runtime variable '{variable}')")
        }
        _ => format!("by {name}"),
    }
}

impl Walker<'_> {
    /// Adds a child to the step.
    fn go(&self, step: &mut Step, route: RouteId, when: StepCondition, question: &Question<'_>) {
        let key = step.key.clone();
        self.go_as(step, route, when, &key, question);
    }

    /// Adds a child with another key to the step.
    fn go_as(
        &self,
        step: &mut Step,
        route: RouteId,
        when: StepCondition,
        key: &[u8],
        question: &Question<'_>,
    ) {
        let child = self.step(route, when, key, step.hashed, question);
        step.next.push(child);
    }

    /// The first replies, the others follow `when`.
    fn first_then(
        &self,
        step: &mut Step,
        routes: &[RouteId],
        when: StepCondition,
        question: &Question<'_>,
    ) {
        for (place, route) in routes.iter().enumerate() {
            self.go(step, *route, if place == 0 { StepCondition::Reply } else { when }, question);
        }
    }

    /// One child of several.
    fn one(
        &self,
        step: &mut Step,
        routes: &[RouteId],
        index: usize,
        note: &str,
        question: &Question<'_>,
    ) {
        let Some(route) = routes.get(index) else { return };
        step.note = format!("{} of {} {note}", index + 1, routes.len());
        self.go(step, *route, StepCondition::Reply, question);
    }

    /// Adds the next steps after this route.
    pub(super) fn fill(&self, route: &Route, step: &mut Step, question: &Question<'_>) {
        match route {
            Route::AllAsync(all) => {
                all.iter()
                    .for_each(|route| self.go(step, *route, StepCondition::Background, question));
            }
            Route::AllInitial(all) => {
                self.first_then(step, all, StepCondition::Background, question)
            }
            Route::AllFastest(all) | Route::AllMajority(all) | Route::AllSync(all) => {
                self.first_then(step, all, StepCondition::Also, question);
            }
            Route::Destination { pool, index } => self.member(*pool, *index, step, question),
            Route::DevNull | Route::Null => "answered as a miss".clone_into(&mut step.note),
            Route::Error { result, message } => {
                step.note = format!("answered with {result} {message}")
            }
            Route::Failover(failover) => self.failover(failover, step, question),
            Route::Hash { children, hash } => {
                if let Some(index) = self.pick(step, hash, children.len(), None) {
                    self.one(step, children, index as usize, &by(hash), question);
                }
            }
            Route::HostId { children, salt } => {
                let number = select::salted(question.host_id, salt) as usize;
                let note = format!("by host id {}", question.host_id);
                self.one(step, children, number % children.len().max(1), &note, question);
            }
            Route::OriginalClientHash { children, offset } => {
                let hash = question
                    .client
                    .map_or(0, |client| spooky_hash32(client.to_string().as_bytes(), 0));
                let index = hash.wrapping_add(*offset) as usize % children.len().max(1);
                self.one(step, children, index, "by the client's address", question);
            }
            _ => self.fill_by_request(route, step, question),
        }
    }

    /// The routes that choose by the command, the key's form, or the time.
    fn fill_by_request(&self, route: &Route, step: &mut Step, question: &Question<'_>) {
        match route {
            Route::KeySplit { destination, replicas, all_sync, first_hit } => {
                self.key_split(*destination, *replicas, *all_sync, *first_hit, step, question);
            }
            Route::ShardSplit { destination, splits } => {
                self.shard_split(*destination, splits, step, question)
            }
            Route::Migrate { from, to, start_time, interval } => {
                let way = select::migrate(
                    step.routed_key(),
                    question.operation,
                    question.now_secs,
                    *start_time,
                    *interval,
                );
                let both = [(way.0, *from), (way.1, *to)].into_iter().filter(|(asked, _)| *asked);
                let both: Vec<_> = both.map(|(_, route)| route).collect();
                self.first_then(step, &both, StepCondition::Also, question);
            }
            Route::MissFailover { children, .. } => {
                let class = question.operation.class();
                let goes_on = matches!(class, CommandClass::Get | CommandClass::Delete);
                let asked = if goes_on { children } else { children.get(..1).unwrap_or_default() };
                self.first_then(step, asked, StepCondition::IfMissedOrFailed, question)
            }
            Route::ModifyKey(rule) => {
                let key = select::modify_bare_key(&step.key, &rule.change);
                step.hashed = None;
                self.go_as(step, rule.target, StepCondition::Reply, &key, question);
            }
            Route::OperationSelector { default, policies } => {
                let found = select::policy(policies, &question.operation).copied().or(*default);
                self.chosen(found, &format!("for {}", question.operation.name()), step, question);
            }
            Route::RoutingGroup { default, policies } => {
                let class = question.operation.class();
                let found = select::policy(policies, &class).copied().or(*default);
                self.chosen(found, &format!("for {class:?} commands"), step, question);
            }
            Route::PrefixSelector { policies, wildcard } => {
                let (route, note) = match select::longest_prefix(policies, &step.key) {
                    Some((prefix, route)) => (Some(*route), format!("prefix '{prefix}'")),
                    None => (*wildcard, "wildcard".to_owned()),
                };
                self.chosen(route, &note, step, question);
            }
            Route::Pool(pool) => self.pool(pool, step, question),
            Route::Shadow { child, index, shadows } => {
                self.go(step, *child, StepCondition::Reply, question);
                self.shadows(shadows, *index, step, question);
            }
            Route::WarmUp(_)
            | Route::Staging { .. }
            | Route::L1L2Cache { .. }
            | Route::L1L2SizeSplit(_) => {
                self.tiers(route, step, question);
            }
            Route::Random(_) | Route::Latest(_) | Route::LoadBalancer(_) => {
                "by chance or load".clone_into(&mut step.note);
                select::children(route)
                    .into_iter()
                    .for_each(|route| self.go(step, route, StepCondition::Sometimes, question));
            }
            _ => self.through(route, step, question),
        }
        self.look(route, step, question);
    }

    /// The requests by which a route looks at the present item after the client's, if they take
    /// another path.
    fn look(&self, route: &Route, step: &mut Step, question: &Question<'_>) {
        let (child, operations): (_, &[Command]) = match (route, question.operation) {
            (
                Route::BigValue { target, .. },
                Command::Append | Command::Prepend | Command::Touch,
            ) => (*target, &[Command::Get]),
            (
                Route::L1L2SizeSplit(split),
                Command::Append
                | Command::Prepend
                | Command::Touch
                | Command::Incr
                | Command::Decr
                | Command::MetaArithmetic,
            ) => (split.l1, &[Command::Get]),
            (
                Route::L1L2Cache { l1, ncache_update_period: 1.., .. },
                Command::Add
                | Command::Append
                | Command::Cas
                | Command::Decr
                | Command::Gat
                | Command::Gats
                | Command::Incr
                | Command::MetaArithmetic
                | Command::MetaSet
                | Command::Prepend
                | Command::Touch,
            ) => (*l1, &[Command::Gets, Command::Cas]),
            _ => return,
        };
        for operation in operations {
            let look = Question { operation: *operation, ..*question };
            let when = StepCondition::Sometimes;
            let look = self.step(child, when, &step.key, step.hashed, &look);
            if step.next.iter().all(|other| other.next != look.next) {
                step.next.push(look);
            }
        }
    }

    /// Routes that pass a request on, or send it elsewhere in some cases.
    fn through(&self, route: &Route, step: &mut Step, question: &Question<'_>) {
        match route {
            Route::KeyParse { num_routing_parts, delimiter, .. } => {
                let parts = *num_routing_parts as usize;
                step.hashed = select::first_parts(&step.key, delimiter.as_bytes(), parts);
            }
            Route::HashStopAllowList { prefixes, .. } => {
                match select::allowed_part(
                    question.operation.class(),
                    &step.key,
                    prefixes,
                    step.hashed,
                ) {
                    Ok(hashed) => step.hashed = hashed,
                    Err(refused) => {
                        step.note = format!("answered with SERVER_ERROR {refused}");
                        return;
                    }
                }
            }
            _ => {}
        }
        let mut children = select::children(route);
        let main = match route {
            Route::Blackhole { default, .. } => Some(*default),
            Route::RateLimit { target, .. } | Route::SlowWarmUp { target, .. } => Some(*target),
            _ => children.first().copied(),
        };
        children.retain(|child| Some(*child) != main);
        match main {
            Some(main) => self.go(step, main, StepCondition::Reply, question),
            None => "answered as a miss".clone_into(&mut step.note),
        }
        children
            .into_iter()
            .for_each(|child| self.go(step, child, StepCondition::Sometimes, question));
    }

    fn chosen(&self, route: Option<RouteId>, note: &str, step: &mut Step, question: &Question<'_>) {
        match route {
            Some(route) => {
                note.clone_into(&mut step.note);
                self.go(step, route, StepCondition::Reply, question);
            }
            None => "no route: answered as a miss".clone_into(&mut step.note),
        }
    }

    fn failover(&self, failover: &Failover, step: &mut Step, question: &Question<'_>) {
        step.note = match &failover.policy {
            FailoverPolicy::InOrder => "in order".to_owned(),
            FailoverPolicy::LeastFailures { max_tries } => {
                format!("least failures, {max_tries} tries")
            }
            FailoverPolicy::DeterministicOrder { max_tries, .. } => {
                format!("by hash with changing salt, {max_tries} tries")
            }
            FailoverPolicy::Rendezvous { max_tries, .. } => {
                format!("by rendezvous, {max_tries} tries")
            }
        };
        if let Some(exptime) = failover.exptime {
            step.note = format!("{}; what the others store lives {exptime} s at most", step.note);
        }
        self.first_then(step, &failover.children, StepCondition::IfFailed, question);
    }

    fn key_split(
        &self,
        destination: RouteId,
        replicas: u32,
        all_sync: bool,
        first_hit: bool,
        step: &mut Step,
        question: &Question<'_>,
    ) {
        let own = select::own_replica(&step.key, replicas, question.host_id);
        step.note = match select::key_replica(&step.key, 1) {
            Some(_) => format!("replica {own} of {replicas} by host id {}", question.host_id),
            None => "too long for replicas".to_owned(),
        };
        let when = match select::replicas_asked(question.operation, all_sync, first_hit) {
            Replicas::Own => None,
            Replicas::All => Some(StepCondition::Background),
            Replicas::FirstHit => Some(StepCondition::Also),
        };
        let names = (0..replicas).filter(|replica| *replica != own);
        let others = when.map(|when| names.map(move |name| (name, when))).into_iter().flatten();
        for (replica, when) in std::iter::once((own, StepCondition::Reply)).chain(others) {
            if let Some(key) = select::key_replica(&step.key, replica) {
                self.go_as(step, destination, when, &key, question);
            }
        }
    }

    fn shard_split(
        &self,
        destination: RouteId,
        splits: &ShardSplits,
        step: &mut Step,
        question: &Question<'_>,
    ) {
        let Some(split) = select::shard_split(&splits.splits, step.routed_key()) else {
            return self.go(step, destination, StepCondition::Reply, question);
        };
        if select::goes_to_all_names(split, question.operation.class()) {
            self.go(step, destination, StepCondition::Reply, question);
            return self.other_names(destination, split, step, question);
        }
        let (key, note) = own_shard_name(split, &step.key, question);
        step.note = note;
        match key {
            Some(key) => {
                step.next.push(self.step(destination, StepCondition::Reply, &key, None, question));
            }
            None => self.go(step, destination, StepCondition::Reply, question),
        }
    }

    /// A delete goes in the background to all names of its shard except the plain one.
    fn other_names(
        &self,
        destination: RouteId,
        split: &ShardSplit,
        step: &mut Step,
        question: &Question<'_>,
    ) {
        for name in 1..select::names_at_most(split) {
            let Some(key) = select::shard_name(&step.key, name) else { continue };
            step.next.push(self.step(destination, StepCondition::Background, &key, None, question));
        }
    }

    fn pool(&self, route: &PoolRoute, step: &mut Step, question: &Question<'_>) {
        let pool = &self.config.pools[route.pool.index()];
        let asked = question.operation;
        let split = route
            .shard_splits
            .as_ref()
            .and_then(|splits| select::shard_split(&splits.splits, step.routed_key()));
        let goes_to_all = |split: &&ShardSplit| select::goes_to_all_names(split, asked.class());
        let own = split.filter(|split| !goes_to_all(split));
        let mut of_host = String::new();
        if let Some((key, note)) = own.map(|split| own_shard_name(split, &step.key, question)) {
            of_host = format!(", {note}");
            if let Some(key) = key {
                step.key = key;
                step.hashed = None;
            }
        }
        if route.latest.is_some() {
            let (name, of) = (&pool.name, pool.members.len());
            step.note = format!("pool '{name}', one of {of} servers by the host, by Latest");
            return;
        }
        let Some(index) = self.pick(step, &route.hash, pool.members.len(), Some(pool)) else {
            step.note = format!("the pool '{}' has no server", pool.name);
            return;
        };
        let salt = if route.hash.salt.is_empty() {
            String::new()
        } else {
            format!(", salt '{}'", route.hash.salt)
        };
        let (by, of) = (by(&route.hash), pool.members.len());
        step.note =
            format!("pool '{}', server {} of {of} {by}{salt}{of_host}", pool.name, index + 1);
        self.member(route.pool, index, step, question);
        if let Some((target, _)) = &route.slow_warmup {
            self.go(step, *target, StepCondition::Sometimes, question);
        }
        self.shadows(&route.shadows, index, step, question);
        if let Some(split) = split.filter(goes_to_all) {
            self.other_names(step.route, split, step, question);
        }
    }

    /// A server, or the route that replaces it.
    fn member(&self, pool: PoolId, index: u32, step: &mut Step, question: &Question<'_>) {
        match self.config.pool(pool).members.get(index as usize) {
            Some(Member::Route(route)) => self.go(step, *route, StepCondition::Reply, question),
            _ => step.server = Some((pool, index)),
        }
    }

    fn shadows(&self, shadows: &[Shadow], index: u32, step: &mut Step, question: &Question<'_>) {
        let key = step.routed_key().to_vec();
        let place = f64::from(hashing::routing_hash(&key)) / f64::from(u32::MAX);
        for shadow in shadows {
            let here =
                shadow.index_range.is_none_or(|(first, last)| (first..=last).contains(&index));
            let when = match &shadow.keys {
                ShadowKeys::Fraction(start, end) if (*start..=*end).contains(&place) => {
                    StepCondition::Background
                }
                ShadowKeys::Keys(keys) if keys.iter().any(|known| known.as_bytes() == key) => {
                    StepCondition::Background
                }
                ShadowKeys::Requests(_) => StepCondition::Sometimes,
                _ => continue,
            };
            if here {
                self.go(step, shadow.target, when, question);
            }
        }
    }

    /// Caches in front of, behind or parallel to another.
    fn tiers(&self, route: &Route, step: &mut Step, question: &Question<'_>) {
        let class = question.operation.class();
        let reads = class == CommandClass::Get;
        let (first, second, when) = match route {
            Route::WarmUp(warm_up) if warm_up.leases && class == CommandClass::Delete => {
                (warm_up.cold, warm_up.warm, Some(StepCondition::Also))
            }
            Route::WarmUp(warm_up) => {
                (warm_up.cold, warm_up.warm, reads.then_some(StepCondition::IfMissed))
            }
            Route::Staging { warm, staging } if class == CommandClass::Delete => {
                (*warm, *staging, Some(StepCondition::Also))
            }
            Route::Staging { warm, staging } => (*warm, *staging, Some(StepCondition::Background)),
            Route::L1L2Cache { l1, l2, .. } => (*l1, *l2, reads.then_some(StepCondition::IfMissed)),
            Route::L1L2SizeSplit(split) => (split.l1, split.l2, Some(StepCondition::Sometimes)),
            _ => return,
        };
        self.go(step, first, StepCondition::Reply, question);
        // A warm cluster is read by `get`. In a new one, the condition of a store says nothing.
        let operation = match (route, question.operation) {
            (Route::WarmUp(_), _) if reads => Command::Get,
            (
                Route::Staging { .. },
                Command::Add | Command::Replace | Command::Cas | Command::LeaseSet,
            ) => Command::Set,
            (_, operation) => operation,
        };
        if let Some(when) = when {
            self.go(step, second, when, &Question { operation, ..*question });
        }
    }
}
