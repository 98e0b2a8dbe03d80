//! Users of a web site: each reads and writes as an application would, through the client library,
//! a router and, on a miss, its database.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use client::{Client, Decode, Encode, LoadError, LookAside, Markers, Source};
use rand_distr::{Distribution as _, Exp1, Zipf};
use staleness::{Read, Write, WriteOutcome};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::database::{ConnectOptions, Session, TABLES};
use crate::deployment::{MARKER, PREFIXES};
use crate::recorder::{From, Recorder, Seen};

/// Concurrent users per cluster.
const USERS: u32 = 16;

/// The times after which a user reads its own write.
const OWN_READ_DELAYS: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(400),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
    Duration::from_millis(4000),
];

/// Longer than any replica lags here: a marker that is not deleted expires by then.
const MARKER_SECS: u32 = 300;

/// The shape of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Rows of each table.
    pub(crate) rows: [u64; TABLES.len()],
    /// Requests per second per cluster.
    pub(crate) rate: f64,
    /// The share of them that are writes.
    pub(crate) writes: f64,
    /// Zipf's exponent for reads.
    pub(crate) skew: f64,
    /// True if remote markers are used.
    pub(crate) with_markers: bool,
}

impl Shape {
    /// All keys.
    pub(crate) fn keys(&self) -> u64 {
        self.rows.iter().sum()
    }

    /// A key's table and row.
    pub(crate) const fn row(&self, key: u64) -> (usize, u64) {
        if key < self.rows[0] { (0, key) } else { (1, key - self.rows[0]) }
    }

    /// A key's name in caches.
    pub(crate) fn name(&self, key: u64) -> String {
        let (table, id) = self.row(key);
        format!("{}{id}", PREFIXES[table])
    }
}

/// Queries of a region's database.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
}

/// The state that all users share.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) shape: Shape,
    pub(crate) recorder: Recorder,
    /// By region.
    pub(crate) queries: [Queries; 2],
    /// The last version of each key. Writes of one key are serialized, so that versions increase in
    /// commit order.
    versions: Vec<Mutex<u64>>,
    popular: Zipf<f64>,
    is_over: AtomicBool,
}

impl Load {
    pub(crate) fn new(shape: Shape) -> Result<Self> {
        #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52 keys")]
        let keys = shape.keys() as f64;
        let popular = Zipf::new(keys, shape.skew).context("--skew")?;
        Ok(Self {
            shape,
            recorder: Recorder::new(shape.keys()),
            queries: Default::default(),
            versions: (0..shape.keys()).map(|_| Mutex::new(1)).collect(),
            popular,
            is_over: AtomicBool::new(false),
        })
    }

    /// Stops requests.
    pub(crate) fn end(&self) {
        // Relaxed: a user that sees it late sends one more request.
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// The written keys.
    pub(crate) async fn written(&self) -> Vec<u64> {
        let mut keys = Vec::new();
        for (key, version) in (0..).zip(&self.versions) {
            if *version.lock().await > 1 {
                keys.push(key);
            }
        }
        keys
    }

    /// The version of a key's next write, which no other user makes.
    pub(crate) async fn next_version(&self, key: u64) -> u64 {
        let Some(last) = usize::try_from(key).ok().and_then(|at| self.versions.get(at)) else {
            return 0;
        };
        let mut last = last.lock().await;
        *last += 1;
        *last
    }

    /// Popular keys are spread over both tables: rank and number are independent.
    fn popular_key(&self) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 to the number of keys"
        )]
        let rank = self.popular.sample(&mut rand::rng()) as u64 - 1;
        rank.wrapping_mul(SPREAD) % self.shape.keys()
    }

    fn any_key(&self) -> u64 {
        rand::random_range(0..self.shape.keys())
    }

    fn count(&self, region: usize, pick: impl FnOnce(&Queries) -> &AtomicU64) {
        pick(&self.queries[region]).fetch_add(1, Ordering::Relaxed);
    }
}

/// A prime larger than the number of keys, so that multiplication by it gives each rank a distinct
/// key.
const SPREAD: u64 = 2_147_483_647;

/// A cluster from its users' view.
#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) name: String,
    pub(crate) number: u16,
    pub(crate) region: usize,
    pub(crate) client: Client,
    look: LookAside,
    markers: Option<Markers>,
    local: ConnectOptions,
    master: ConnectOptions,
}

impl Frontend {
    /// The users of the cluster whose router is at `router`. They never get deleted values, not
    /// even during a fill.
    pub(crate) fn new(
        load: &Load,
        name: String,
        region: usize,
        router: String,
        [local, master]: [ConnectOptions; 2],
    ) -> Result<Self> {
        let client = Client::builder()
            .servers([router])
            .build()
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let look = client.look_aside().takes_stale(false);
        let markers = (region > 0 && load.shape.with_markers)
            .then(|| Markers::new(client.clone(), MARKER, MARKER_SECS));
        let number = load.recorder.add_cluster();
        Ok(Self { name, number, region, client, look, markers, local, master })
    }
}

/// Starts a cluster's users, until [`Load::end`].
pub(crate) fn open(load: &Arc<Load>, frontend: &Arc<Frontend>) -> Vec<JoinHandle<()>> {
    (0..USERS)
        .map(|_| {
            let user = User {
                load: Arc::clone(load),
                frontend: Arc::clone(frontend),
                local: Session::new(frontend.local.clone()),
                master: Session::new(frontend.master.clone()),
                written: VecDeque::new(),
            };
            tokio::spawn(user.run())
        })
        .collect()
}

/// A row as it is cached.
#[derive(Clone, Debug)]
struct Page {
    version: u64,
    body: String,
}

impl Encode for Page {
    fn encode(&self) -> (std::borrow::Cow<'_, [u8]>, u32) {
        (format!("{} {}", self.version, self.body).into_bytes().into(), client::FLAG_TEXT)
    }
}

impl Decode for Page {
    fn decode(bytes: Vec<u8>, flags: u32) -> Result<Self, client::Error> {
        let text = <String as Decode>::decode(bytes, flags)?;
        let parts =
            text.split_once(' ').and_then(|(version, body)| Some((version.parse().ok()?, body)));
        let (version, body) = parts.ok_or(client::Error::Undecodable("no version"))?;
        Ok(Self { version, body: body.to_owned() })
    }
}

/// The version of a cached row.
pub(crate) fn version_of(value: client::Value) -> Option<u64> {
    value.decode::<Page>().ok().map(|page| page.version)
}

/// A pending read of one's own write.
#[derive(Clone, Copy, Debug)]
struct Look {
    due: Instant,
    key: u64,
    version: u64,
}

struct User {
    load: Arc<Load>,
    frontend: Arc<Frontend>,
    local: Session,
    master: Session,
    written: VecDeque<Look>,
}

impl User {
    async fn run(mut self) {
        let mean = f64::from(USERS) / self.load.shape.rate;
        let pause = || {
            let share: f64 = Exp1.sample(&mut rand::rng());
            Duration::from_secs_f64((share * mean).min(3600.0))
        };
        let mut next = Instant::now() + pause();
        while !self.load.is_over.load(Ordering::Relaxed) {
            if let Some(look) = self.written.pop_front_if(|look| look.due <= Instant::now()) {
                self.read(look.key, Some(look.version)).await;
                continue;
            }
            let due = self.written.front().map_or(next, |look| look.due.min(next));
            tokio::time::sleep_until(due).await;
            if due < next {
                continue;
            }
            // After a delay, a user does not catch up with everything.
            next = next.max(Instant::now() - Duration::from_secs(1)) + pause();
            if rand::random_bool(self.load.shape.writes) {
                self.write(self.load.any_key()).await;
            } else {
                self.read(self.load.popular_key(), None).await;
            }
        }
    }

    async fn read(&mut self, key: u64, own: Option<u64>) {
        let (load, frontend) = (&*self.load, &*self.frontend);
        let (table, id) = load.shape.row(key);
        let name = load.shape.name(key);
        let (local, master) = (&mut self.local, &mut self.master);
        let from = AtomicU8::new(0);
        let query = |source: Source| {
            let is_master = source == Source::Master;
            from.store(if is_master { 2 } else { 1 }, Ordering::Relaxed);
            load.count(if is_master { 0 } else { frontend.region }, |queries| &queries.reads);
            async move {
                let session = if is_master { master } else { local };
                let row = session.row(TABLES[table], id).await?;
                anyhow::Ok(Page { version: row.version, body: row.body })
            }
        };
        let called = load.recorder.now();
        let shown = match &frontend.markers {
            Some(markers) => frontend.look.get_or_load_from(markers, name, query).await,
            None => frontend.look.get_or_load(name, || query(Source::Local)).await,
        };
        let returned = load.recorder.now();
        let Ok(page) = shown else { return load.recorder.read_failed(frontend.number) };
        let from = match from.into_inner() {
            0 => From::Cache,
            1 => From::Local,
            _ => From::Master,
        };
        let cluster = frontend.number;
        let read = Read { cluster, key, called, returned, version: Some(page.version) };
        load.recorder.read(Seen { read, from, own });
    }

    async fn write(&mut self, key: u64) {
        let load = Arc::clone(&self.load);
        let (table, id) = load.shape.row(key);
        let name = load.shape.name(key);
        let Some(last) = usize::try_from(key).ok().and_then(|at| load.versions.get(at)) else {
            return;
        };
        let mut last = last.lock().await;
        *last += 1;
        let version = *last;
        load.count(0, |queries| &queries.writes);
        let called = load.recorder.write_begins(key, version);
        let number = self.frontend.number;
        let (recorder, master) = (&load.recorder, &mut self.master);
        let update = async move {
            let done = master.write(TABLES[table], id, version).await;
            let outcome = if done.is_ok() {
                WriteOutcome::Committed(recorder.now())
            } else {
                WriteOutcome::Unknown
            };
            recorder.write_ends(number, Write { key, version, called, outcome });
            done
        };
        let done = match &self.frontend.markers {
            Some(markers) => markers.write(&name, |_| update).await.map(drop),
            None => {
                let done = update.await.map_err(|error| LoadError::Loader(Arc::new(error)));
                if done.is_ok() {
                    // If this fails, the key is deleted when the log arrives.
                    let _ = self.frontend.client.delete(&name).await;
                }
                done
            }
        };
        drop(last);
        if done.is_ok() {
            let now = Instant::now();
            self.written.extend(OWN_READ_DELAYS.map(|after| Look {
                due: now + after,
                key,
                version,
            }));
            self.written.make_contiguous().sort_by_key(|look| look.due);
        }
    }
}
