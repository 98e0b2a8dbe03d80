//! The console's tier: its members, their last minutes, and a tick for every page.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bytes::Bytes;
use parking_lot::Mutex;
use plan::Target;
use serde_json::{Value, json};
use tokio::sync::watch;
use tools::{Options, Role};
use top::{Extras, Member, Poller, Row, totals};

use crate::history::{Frame, History, Line};

/// The interval of full queries of a member while a page is open.
const DETAILS_EACH: Duration = Duration::from_secs(10);

/// The frame of an event of the stream.
const EVENT: (&str, &str) = ("data: ", "\n\n");

/// The members of a tier.
#[derive(Debug)]
pub(crate) struct Tier {
    poller: Poller,
    history: Mutex<History>,
    /// The last tick as an event of the stream. A slow page misses some.
    ticks: watch::Sender<Bytes>,
    /// The connection settings for members.
    pub(crate) options: Options,
}

impl Tier {
    /// Starts to query the targets once per `interval`.
    ///
    /// # Errors
    ///
    /// When the system has no more threads.
    pub(crate) fn start(
        targets: Vec<Target>,
        options: Options,
        interval: Duration,
    ) -> Result<Arc<Self>> {
        let poller = Poller::start(targets, &options, interval, Extras::default())?;
        let (ticks, _) = watch::channel(Bytes::new());
        let history = Mutex::new(History::default());
        let tier = Arc::new(Self { poller, history, ticks, options });
        tier.tick();
        let weak = Arc::downgrade(&tier);
        thread::Builder::new().name("ticks".to_owned()).spawn(move || turn(&weak, interval))?;
        Ok(tier)
    }

    /// The state of every member, by index.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.poller.members()
    }

    /// The servers that can be queried for keys.
    pub(crate) fn servers(&self) -> Vec<Target> {
        let members = self.members().into_iter();
        let is_server =
            |member: &Member| member.now.as_ref().is_none_or(|now| now.role == Role::Server);
        members.filter(is_server).map(|member| member.target).collect()
    }

    /// The series of the member with this address, or of a role.
    pub(crate) fn history(&self, of: &str) -> Option<Value> {
        let history = self.history.lock();
        let roles = [Role::Server, Role::Proxy, Role::Invalidator];
        if let Some(role) = roles.into_iter().find(|role| role.name() == of) {
            return Some(history.of_role(role));
        }
        let place = self.members().iter().position(|member| member.target.address == of)?;
        history.of_member(place)
    }

    /// The stream of ticks, the current one first.
    pub(crate) fn watch(&self) -> watch::Receiver<Bytes> {
        let receiver = self.ticks.subscribe();
        self.wish();
        receiver
    }

    /// The last tick, as JSON.
    pub(crate) fn last_tick(&self) -> String {
        let event = self.ticks.borrow();
        let end = event.len().saturating_sub(EVENT.1.len());
        String::from_utf8_lossy(event.get(EVENT.0.len()..end).unwrap_or(b"null")).into_owned()
    }

    /// Hot keys and details are queried while a page is open.
    fn wish(&self) {
        let is_watched = self.ticks.receiver_count() > 0;
        let details_each = is_watched.then_some(DETAILS_EACH);
        self.poller.want(Extras { hot_keys: is_watched, details_of: None, details_each });
    }

    fn tick(&self) {
        self.wish();
        let members = self.members();
        let rows: Vec<Row> =
            members.iter().enumerate().map(|(place, member)| Row::new(place, member)).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let line = |row: &Row| Line::new(row.role, &row.numbers);
        let mut roles: Vec<Role> = rows.iter().map(|row| row.role).collect();
        roles.sort_unstable();
        roles.dedup();
        let total = |role: &Role| {
            let of_role: Vec<&Row> = rows.iter().filter(|row| row.role == *role).collect();
            Line::new(*role, &totals(*role, &of_role))
        };
        let frame = Frame {
            at_ms,
            members: rows.iter().map(line).collect(),
            totals: roles.iter().map(total).collect(),
        };
        self.history.lock().add(frame);
        let mut tick = top::json(&members, &rows);
        if let Some(fields) = tick.as_object_mut() {
            fields.insert("at_ms".to_owned(), json!(at_ms));
        }
        // JSON in one line has no line end that could end the event.
        self.ticks.send_replace(Bytes::from(format!("{}{tick}{}", EVENT.0, EVENT.1)));
    }
}

/// The thread's loop, which lasts as long as the tier.
fn turn(tier: &Weak<Tier>, interval: Duration) {
    // The first answers come at once.
    thread::sleep(Duration::from_millis(200).min(interval));
    while let Some(tier) = tier.upgrade() {
        tier.tick();
        drop(tier);
        thread::sleep(interval);
    }
}
