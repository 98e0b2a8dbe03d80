//! Routers of one fleet in simulated time: if one router knows that a server has old values, no
//! router trusts the server. See [`super::marks`].

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use routeconf::{MemorySources, Params, load};
use spool::{Fsync, Spool};
use testkit::seeds;

use super::spooler::Work;
use super::{Counters, Deletes, Inbox, Mailbox, Shared, Target};
use crate::core::{Core, Submitted};
use crate::plan::{Plan, TreeFlags};
use simulation::{Clock, Net, Trouble, address, now_us, system};
use upstream::{
    Command, Failure, Outcome, Registry, Reply, Request, Settings, Sink, Ticket, Upstream, Wake,
};

/// Servers of the pool, in most tests.
const SERVERS: usize = 4;

/// The number of the address at which no server answers.
const NOWHERE: usize = SERVERS;

/// Longer than two intervals of marks.
const SEEN_US: u64 = 3_000_000;

/// Longer than the mark of a router that has executed its deletes: two intervals until it is
/// shortened, three seconds, and two intervals until the router sees that.
const SETTLED_US: u64 = 7_000_000;

/// Longer than several intervals, and shorter than the lifetime of a mark.
const AWAY_US: u64 = 10_000_000;

/// Longer than the mark of a dead router.
const ENDED_US: u64 = 65_000_000;

/// A configuration with one pool.
fn plan(servers: usize) -> Plan {
    plan_of(&[("A", &(0..servers).collect::<Vec<_>>())])
}

/// A configuration with these pools, each with its servers' numbers, and a route to pool A.
fn plan_of(pools: &[(&str, &[usize])]) -> Plan {
    let settings = Settings {
        timeout: Duration::from_millis(50),
        connect_timeout: Duration::from_millis(50),
        probe_initial: Duration::from_millis(200),
        probe_max: Duration::from_millis(200),
        ..Settings::default()
    };
    let name = |number: &usize| format!("\"{}\"", address(*number));
    let pools = pools.iter().map(|(pool, servers)| {
        let names: Vec<_> = servers.iter().map(name).collect();
        format!(r#""{pool}": {{"servers": [{}]}}"#, names.join(","))
    });
    let pools = pools.collect::<Vec<_>>().join(",");
    let text = format!(r#"{{"pools": {{{pools}}}, "route": "PoolRoute|A"}}"#);
    let mut nothing = MemorySources(std::iter::empty().collect());
    let loaded = load("simulated", &text, &Params::default(), &mut nothing);
    Plan::new(loaded.expect("a configuration").config, settings, TreeFlags::default())
        .expect("a plan")
}

/// The targets of a router that cannot reach the server at `place`.
fn cut_off(plan: &Plan, place: usize) -> Vec<Target> {
    let mut targets = plan.targets();
    for target in targets.iter_mut().filter(|target| target.address == address(place)) {
        target.address = address(NOWHERE);
    }
    targets
}

/// A router's spooler without its thread.
struct Router {
    work: Work<fn(&str)>,
    shared: Arc<Shared>,
    registry: Registry,
    folder: PathBuf,
}

impl Router {
    fn new(targets: Vec<Target>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Relaxed: numbers differ, and nothing else depends on them.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("holdall-marks-{}-{number}", std::process::id());
        Self::begin(std::env::temp_dir().join(folder), targets)
    }

    /// Restarts the router like a program that was killed.
    fn again(mut self, targets: Vec<Target>) -> Self {
        let folder = std::mem::take(&mut self.folder);
        drop(self);
        Self::begin(folder, targets)
    }

    fn begin(folder: PathBuf, targets: Vec<Target>) -> Self {
        let settings = spool::Settings { fsync: Fsync::Never, ..spool::Settings::default() };
        let spool = Spool::open(&folder, settings).expect("a spool");
        let shared = Arc::new(Shared {
            inbox: std::sync::Mutex::<Inbox>::default(),
            wake: Wake::new().expect("a descriptor"),
            counters: Counters::default(),
        });
        let registry = Registry::default();
        let log: fn(&str) = |_| {};
        let work = Work::new(spool, None, registry.clone(), 1, true, Arc::clone(&shared), log);
        let mut work = work.expect("a poller");
        work.begin(targets);
        Self { work, shared, registry, folder }
    }

    fn deletes(&self) -> Deletes {
        Deletes { shared: Arc::clone(&self.shared) }
    }

    /// Keeps a delete of `key` for the server at `place`.
    fn keep(&mut self, place: usize, key: &[u8]) {
        let mailbox = Arc::new(Mailbox::new().expect("a descriptor"));
        let server = Arc::from(address(place).to_string());
        assert!(self.deletes().keep(
            &server,
            "A",
            &Request::new(Command::Delete, key),
            &mailbox,
            1
        ));
        self.work.turn();
        assert_eq!(mailbox.take(), [(1, true)]);
    }

    /// Makes all servers of the pool reachable from now on.
    fn reach(&mut self, plan: &Plan) {
        let (tell, _) = std::sync::mpsc::channel();
        self.shared.inbox().targets.push((plan.targets(), tell));
        self.work.turn();
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Leftovers are in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[derive(Default)]
struct Last(Option<Outcome>);

impl Sink for Last {
    fn answer(&mut self, _: Ticket, reply: &Reply<'_>) {
        self.0 = Some(reply.outcome);
    }
}

/// Two routers that keep deletes, and one whose clients read.
struct Fleet {
    plan: Plan,
    clock: Clock,
    writers: Vec<Router>,
    reader: Router,
    core: Core,
    /// Two keys of the first server.
    keys: [Vec<u8>; 2],
}

impl Fleet {
    /// Each of the writers cannot reach one server.
    fn new(seed: u64, servers: usize, cut: [usize; 2]) -> Self {
        Self::of(seed, plan(servers), &plan(servers), cut)
    }

    /// As [`Self::new`], with the writers' configuration and the reader's.
    fn of(seed: u64, plan: Plan, readers: &Plan, cut: [usize; 2]) -> Self {
        system::enter(Net::new(seed, NOWHERE + 1));
        system::with(|net| net.begin(NOWHERE, Trouble::Dead, u64::MAX));
        let clock = Clock::new(seed, 3000);
        let writers = cut.into_iter().map(|place| Router::new(cut_off(&plan, place))).collect();
        let reader = Router::new(readers.targets());
        let upstream = Upstream::new(0, reader.registry.clone(), system::now()).expect("a poller");
        let core = Core::new(upstream, 7, seed, |upstream| readers.tree(upstream)).expect("a core");
        let mut fleet = Self { plan, clock, writers, reader, core, keys: Default::default() };
        let mut keys = (0..).map(|number: u32| format!("k:{number}").into_bytes());
        for place in 0..2 {
            let is_first = |key: &Vec<u8>| {
                fleet.ask(&Request::new(Command::Get, key));
                system::with(|net| net.servers().next().is_some_and(|one| one.asked.contains(key)))
            };
            fleet.keys[place] = keys.by_ref().find(is_first).expect("a key");
            let key = fleet.keys[place].clone();
            let set = Request { value: b"old", ..Request::new(Command::Set, &key) };
            assert_eq!(fleet.ask(&set), Outcome::Stored);
            assert_eq!(fleet.get(place), Outcome::Found);
        }
        fleet
    }

    fn ask(&mut self, request: &Request<'_>) -> Outcome {
        let mut last = Last::default();
        self.core.turn(system::now());
        if let Submitted::Done(reply) = self.core.submit(request, 1) {
            return reply.outcome;
        }
        self.core.settle(&mut last);
        while last.0.is_none() {
            self.turn(None, &mut last);
        }
        last.0.expect("an answer")
    }

    fn get(&mut self, place: usize) -> Outcome {
        let key = self.keys[place].clone();
        self.ask(&Request::new(Command::Get, &key))
    }

    fn turn(&mut self, until_us: Option<u64>, sink: &mut Last) {
        let wait = |until: u64| Duration::from_micros(until.saturating_sub(now_us()));
        let until = until_us.map(|until| system::now() + wait(until));
        let writers = self.writers.iter().map(|writer| writer.work.due());
        let others = [self.core.deadline(), self.reader.work.due(), until];
        self.clock.pass(writers.chain(others));
        for router in &mut self.writers {
            router.work.turn();
        }
        self.reader.work.turn();
        self.core.turn(system::now());
        self.core.on_events(sink);
        self.core.settle(sink);
    }

    /// Makes all servers reachable for the writer from now on.
    fn heal(&mut self, writer: usize) {
        self.writers[writer].reach(&self.plan);
    }

    /// Keeps the delete of the key of server 0 at the first writer.
    fn keep_a_delete(&mut self) {
        let Self { writers, keys, .. } = self;
        writers[0].keep(0, &keys[0]);
    }

    fn pass(&mut self, us: u64) {
        let end_us = now_us() + us;
        while now_us() < end_us {
            self.turn(Some(end_us), &mut Last::default());
        }
    }

    /// Asserts that no client gets a value of the first server for this time.
    #[track_caller]
    fn assert_held(&mut self, us: u64) {
        let end_us = now_us() + us;
        while now_us() < end_us {
            assert_eq!(self.get(0), Outcome::Failed(Failure::TryAgain), "an old value is believed");
            self.pass(50_000);
        }
        assert_eq!(self.reader.deletes().counts().marked, 1);
    }

    /// Asserts that the delete is executed, and that routers trust the server.
    #[track_caller]
    fn assert_trusted(&mut self) {
        self.pass(SETTLED_US);
        assert_eq!((self.get(0), self.get(1)), (Outcome::NotFound, Outcome::Found));
        assert_eq!(self.reader.deletes().counts().marked, 0);
    }
}

/// The reader reaches the server all the time.
#[test]
fn no_router_trusts_a_server_that_missed_deletes() {
    seeds(10, "what_one_router_could_not_delete", |seed| {
        let mut fleet = Fleet::new(seed, SERVERS, [0, 0]);
        // One of the three servers that keep the mark may also be down.
        let place = 1 + usize::try_from(seed % SERVERS as u64).unwrap_or(0);
        system::with(|net| net.begin(place, Trouble::Dead, u64::MAX));
        fleet.keep_a_delete();
        fleet.pass(SEEN_US);
        // The mark is rewritten, so it outlives its first lifetime.
        fleet.assert_held(if seed % 10 == 0 { ENDED_US } else { SETTLED_US });
        fleet.heal(0);
        fleet.assert_trusted();
    });
}

#[test]
fn the_mark_stays_until_every_router_has_deleted() {
    seeds(10, "the_mark_stays", |seed| {
        let mut fleet = Fleet::new(seed, SERVERS, [0, 0]);
        let keys = fleet.keys.clone();
        fleet.writers[0].keep(0, b"another");
        fleet.writers[1].keep(0, &keys[0]);
        fleet.pass(SEEN_US);
        fleet.heal(0);
        fleet.assert_held(SETTLED_US);
        assert_eq!(fleet.writers[0].deletes().counts().pending, 0);
        fleet.heal(1);
        fleet.assert_trusted();
    });
}

/// The mark that it left ends with its deletes.
#[test]
fn a_killed_router_ends_its_mark_after_its_restart() {
    let mut fleet = Fleet::new(4, SERVERS, [0, 0]);
    fleet.keep_a_delete();
    fleet.pass(SEEN_US);
    let killed = fleet.writers.remove(0);
    let targets = fleet.plan.targets();
    fleet.writers.push(killed.again(targets));
    fleet.assert_trusted();
}

/// Sets the trouble of the servers that keep the mark of the first, from now on.
fn peers_are(trouble: Trouble) {
    for peer in 1..SERVERS {
        system::with(|net| net.begin(peer, trouble, u64::MAX));
    }
}

/// The router was killed after its deletes were executed, before its peers heard of that: they were
/// down, or it was a moment too early.
#[test]
fn a_router_killed_after_its_deletes_ends_its_mark_on_restart() {
    for are_away in [false, true] {
        seeds(10, "a_router_killed_before", |seed| {
            let mut fleet = Fleet::new(seed, SERVERS, [0, 0]);
            fleet.keep_a_delete();
            fleet.pass(SEEN_US);
            peers_are(if are_away { Trouble::Dead } else { Trouble::None });
            fleet.heal(0);
            while fleet.writers[0].deletes().counts().pending > 0 {
                fleet.pass(10_000);
            }
            let killed = fleet.writers.remove(0);
            let targets = fleet.plan.targets();
            fleet.writers.push(killed.again(targets));
            if are_away {
                fleet.pass(AWAY_US);
                peers_are(Trouble::None);
            }
            fleet.assert_trusted();
        });
    }
}

/// The peers are down while the deletes are executed, and still have the mark when they return.
#[test]
fn a_mark_ends_even_if_its_peers_were_down_at_the_deletes() {
    seeds(10, "a_mark_ends_though", |seed| {
        let mut fleet = Fleet::new(seed, SERVERS, [0, 0]);
        fleet.keep_a_delete();
        fleet.pass(SEEN_US);
        peers_are(Trouble::Dead);
        fleet.heal(0);
        fleet.pass(AWAY_US);
        assert_eq!(fleet.writers[0].deletes().counts().pending, 0);
        peers_are(Trouble::None);
        fleet.assert_trusted();
    });
}

/// Two servers keep each other's mark, and neither gets gets.
#[test]
fn marks_are_also_read_from_marked_servers() {
    let mut fleet = Fleet::new(3, 2, [0, 1]);
    fleet.keep_a_delete();
    fleet.writers[1].keep(1, b"another");
    fleet.pass(SEEN_US);
    assert_eq!(fleet.reader.deletes().counts().marked, 2);
    assert_eq!(fleet.get(0), Outcome::Failed(Failure::TryAgain));
    fleet.heal(0);
    fleet.heal(1);
    fleet.assert_trusted();
}

/// Servers of another pool keep its mark. The reader has a third pool, unknown to the writer.
#[test]
fn a_single_server_pool_is_marked_on_servers_of_other_pools() {
    seeds(10, "a_server_alone", |seed| {
        let plan = plan_of(&[("A", &[0]), ("B", &[1, 2])]);
        let readers = plan_of(&[("A", &[0]), ("B", &[1, 2]), ("C", &[3])]);
        let mut fleet = Fleet::of(seed, plan, &readers, [0, 0]);
        fleet.keep_a_delete();
        fleet.pass(SEEN_US);
        fleet.assert_held(SETTLED_US);
        fleet.heal(0);
        fleet.assert_trusted();
    });
}

/// The limit that docs/router.md names.
#[test]
fn the_only_server_of_a_configuration_cannot_be_marked() {
    let mut fleet = Fleet::new(6, 1, [0, 0]);
    fleet.keep_a_delete();
    fleet.pass(SEEN_US);
    assert_eq!(fleet.get(0), Outcome::Found);
    let counts = fleet.reader.deletes().counts();
    assert_eq!((counts.marked, counts.unmarkable), (0, 1));
    // `holdall check` reports it earlier.
    let only_server = |plan: &Plan| routeconf::lint::only_server(plan.config()).is_some();
    assert!(only_server(&fleet.plan) && !only_server(&plan(2)));
    assert!(!only_server(&plan_of(&[("A", &[0]), ("B", &[1])])));
}

/// The limit that docs/router.md names.
#[test]
fn the_mark_of_a_removed_router_expires() {
    let mut fleet = Fleet::new(1, SERVERS, [0, 0]);
    fleet.keep_a_delete();
    fleet.pass(SEEN_US);
    fleet.writers.clear();
    fleet.assert_held(SEEN_US);
    fleet.pass(ENDED_US);
    assert_eq!(fleet.get(0), Outcome::Found);
}

/// One timeout does not mark a server that executes the delete a moment later.
#[test]
fn a_delete_executed_at_the_first_attempt_sets_no_mark() {
    let mut fleet = Fleet::new(2, SERVERS, [0, 0]);
    fleet.heal(0);
    fleet.keep_a_delete();
    fleet.pass(SEEN_US);
    assert_eq!((fleet.get(0), fleet.get(1)), (Outcome::NotFound, Outcome::Found));
    assert_eq!(fleet.reader.deletes().counts().marked, 0);
}

#[test]
fn each_server_has_three_other_servers_as_peers() {
    let one = plan(SERVERS);
    for target in one.targets() {
        assert_eq!((target.peers.len(), target.peers.contains(&target.name)), (3, false));
    }
}

/// The names of the servers that keep the mark of server 0.
fn peers_of_first(pools: &[(&str, &[usize])]) -> Vec<String> {
    let targets = plan_of(pools).targets();
    let first = targets.into_iter().find(|target| target.address == address(0));
    first.expect("server 0").peers
}

#[test]
fn a_single_server_pool_has_a_peer_in_each_other_pool() {
    let both = peers_of_first(&[("A", &[0]), ("B", &[1, 2]), ("C", &[3, 0])]);
    assert_eq!(both, [address(3).to_string()], "it is not alone in C");
    let [in_b, in_c] = [("B", &[1, 2, 4][..]), ("C", &[3, 5, 6][..])].map(|pool| {
        let peers = peers_of_first(&[("A", &[0]), pool, ("same", &[0])]);
        assert_eq!(peers.len(), 1);
        peers[0].clone()
    });
    let mut peers = peers_of_first(&[("C", &[3, 5, 6]), ("A", &[0]), ("B", &[1, 2, 4])]);
    peers.sort();
    assert_eq!(peers, if in_b < in_c { [in_b, in_c] } else { [in_c, in_b] });
    // Of many pools, always the same eight, whatever their order.
    let names: Vec<_> = (1..40).map(|number| format!("P{number}")).collect();
    let alone: Vec<_> = (1..40).map(|number| [number]).collect();
    let many = names.iter().map(String::as_str).zip(alone.iter().map(|one| &one[..]));
    let mut many: Vec<_> = many.chain([("A", &[0][..])]).collect();
    let peers = peers_of_first(&many);
    many.reverse();
    assert_eq!((peers.len(), peers), (8, peers_of_first(&many)));
}
