//! A member's line of the table: its numbers and its fault.

use std::sync::Arc;

use crate::number::Unit;
use crate::poller::Member;
use tools::{Reading, Role};

/// The combination of all members' numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Total {
    /// The sum.
    Sum,
    /// The maximum.
    Most,
    /// The mean, weighted by the gets that the member answered: the hit ratio.
    MeanByGets,
    /// The mean, weighted by the member's memory.
    MeanByMemory,
}

/// A column of one role's table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The head: at most six characters.
    pub title: &'static str,
    /// The name in JSON.
    pub name: &'static str,
    /// Its measure.
    pub unit: Unit,
    /// The combination of all members' numbers.
    pub total: Total,
    /// Omitted on a terminal of 80 columns.
    pub(crate) is_wide: bool,
    value: fn(&Readings<'_>) -> Option<f64>,
}

const fn column(
    title: &'static str,
    name: &'static str,
    unit: Unit,
    total: Total,
    value: fn(&Readings<'_>) -> Option<f64>,
) -> Column {
    Column { title, name, unit, total, is_wide: false, value }
}

const fn wide(column: Column) -> Column {
    Column { is_wide: true, ..column }
}

use Total::{MeanByGets, MeanByMemory, Most, Sum};
use Unit::{Bytes, Count, Ratio, Seconds};

const SERVER: &[Column] = &[
    column("gets/s", "gets_per_second", Count, Sum, |of| of.rate("cmd_get")),
    column("hit", "hit_ratio", Ratio, MeanByGets, |of| of.hit_ratio()),
    column("sets/s", "sets_per_second", Count, Sum, |of| of.rate("cmd_set")),
    column("evic/s", "evictions_per_second", Count, Sum, |of| of.rate("evictions")),
    column("p99", "get_p99_seconds", Seconds, Most, |of| of.now.number("latency:get:p99_seconds")),
    column("memory", "memory_ratio", Ratio, MeanByMemory, |of| {
        Some(of.now.number("bytes")? / of.now.number("limit_maxbytes").filter(|all| *all > 0.0)?)
    }),
    column("items", "items", Count, Sum, |of| of.now.number("curr_items")),
    column("conns", "connections", Count, Sum, |of| of.now.number("curr_connections")),
    wide(column("p50", "get_p50_seconds", Seconds, Most, |of| {
        of.now.number("latency:get:p50_seconds")
    })),
    wide(column("p99.9", "get_p999_seconds", Seconds, Most, |of| {
        of.now.number("latency:get:p999_seconds")
    })),
    wide(column("dels/s", "deletes_per_second", Count, Sum, |of| {
        Some(of.rate("delete_hits")? + of.rate("delete_misses")?)
    })),
    wide(column("in/s", "received_bytes_per_second", Bytes, Sum, |of| of.rate("bytes_read"))),
    wide(column("out/s", "sent_bytes_per_second", Bytes, Sum, |of| of.rate("bytes_written"))),
    wide(column("limit", "limit_bytes", Bytes, Sum, |of| of.now.number("limit_maxbytes"))),
    wide(ROUND_TRIP),
    wide(UPTIME),
];

const PROXY: &[Column] = &[
    column("gets/s", "gets_per_second", Count, Sum, |of| of.rate("cmd_get_count")),
    column("sets/s", "sets_per_second", Count, Sum, |of| of.rate("cmd_set_count")),
    column("dels/s", "deletes_per_second", Count, Sum, |of| of.rate("cmd_delete_count")),
    column("errs/s", "errors_per_second", Count, Sum, |of| of.rate("result_error_count")),
    column("mean", "mean_seconds", Seconds, Most, |of| of.micros("duration_us")),
    column("p99", "p99_seconds", Seconds, Most, |of| of.micros("duration_p99_us")),
    column("servrs", "servers", Count, Most, |of| of.now.number("num_servers")),
    column("away", "servers_away", Count, Most, |of| of.now.number("num_suspect_servers")),
    wide(column("conns", "connections", Count, Sum, |of| of.now.number("num_client_connections"))),
    wide(column("p50", "p50_seconds", Seconds, Most, |of| of.micros("duration_p50_us"))),
    wide(column("p99.9", "p999_seconds", Seconds, Most, |of| of.micros("duration_p999_us"))),
    wide(column("in/s", "received_bytes_per_second", Bytes, Sum, |of| of.rate("bytes_read"))),
    wide(column("out/s", "sent_bytes_per_second", Bytes, Sum, |of| of.rate("bytes_written"))),
    wide(column("config", "configuration_age_seconds", Seconds, Most, |of| {
        of.now.number("config_age")
    })),
    wide(ROUND_TRIP),
    wide(UPTIME),
];

const INVALIDATOR: &[Column] = &[
    column("keys/s", "keys_per_second", Count, Sum, |of| of.rate("keys")),
    column("done/s", "delivered_per_second", Count, Sum, |of| of.rate_of_clusters("delivered")),
    column("lag", "lag_seconds", Seconds, Most, |of| Some(of.most("lag_ms")? / 1e3)),
    column("canary", "canary_seconds", Seconds, Most, |of| Some(of.most("canary_ms")? / 1e3)),
    column("wait", "waiting_keys", Count, Sum, |of| of.sum("waiting")),
    column("gaps", "gaps", Count, Sum, |of| of.now.number("gaps")),
    column("behind", "behind_bytes", Bytes, Most, |of| of.now.number("behind_bytes")),
    column("spool", "spool_bytes", Bytes, Sum, |of| of.sum("spool_bytes")),
    wide(column("check", "check_age_seconds", Seconds, Most, |of| {
        Some(of.now.number("check_age_ms")? / 1e3)
    })),
    wide(ROUND_TRIP),
];

const ROUND_TRIP: Column =
    column("stats", "stats_seconds", Seconds, Most, |of| Some(of.now.round_trip.as_secs_f64()));
const UPTIME: Column =
    column("uptime", "uptime_seconds", Seconds, Most, |of| of.now.number("uptime"));

/// The columns of a role, narrow ones first.
#[must_use]
pub const fn columns(role: Role) -> &'static [Column] {
    match role {
        Role::Server => SERVER,
        Role::Proxy => PROXY,
        Role::Invalidator => INVALIDATOR,
    }
}

/// The fault of a member.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Health {
    /// Nothing.
    Good,
    /// It answers, and reports a fault.
    Trouble(String),
    /// It does not answer.
    Away(String),
    /// It was not queried yet.
    Unknown,
}

impl Health {
    /// The word in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Trouble(_) => "trouble",
            Self::Away(_) => "away",
            Self::Unknown => "unknown",
        }
    }

    /// The reason, if there is one.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Trouble(why) | Self::Away(why) => why,
            Self::Good | Self::Unknown => "",
        }
    }

    /// Worse ranks are lower, so that they come first.
    pub(crate) const fn rank(&self) -> u8 {
        match self {
            Self::Away(_) => 0,
            Self::Trouble(_) => 1,
            Self::Unknown => 2,
            Self::Good => 3,
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The index of the member in the poller's order.
    pub place: usize,
    /// `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// `region/cluster`, or empty.
    pub group: String,
    /// Its kind; a server until the first answer.
    pub role: Role,
    /// The version that it reports.
    pub version: String,
    /// Its fault.
    pub health: Health,
    /// The numbers, in the order of the role's [`columns`]; none if the member does not report it,
    /// or a rate needs a second answer.
    pub numbers: Vec<Option<f64>>,
}

impl Row {
    /// The line of a member.
    #[must_use]
    pub fn new(place: usize, member: &Member) -> Self {
        let role = member.now.as_ref().map_or(Role::Server, |now| now.role);
        let is_away = member.error.is_some();
        // A number of an unavailable member would be outdated.
        let readings = member.now.as_deref().filter(|_| !is_away);
        let readings = readings.map(|now| Readings { now, before: earlier(member, now) });
        let numbers = columns(role).iter().map(|column| (column.value)(readings.as_ref()?));
        Self {
            place,
            address: member.target.address.clone(),
            group: member.target.group.clone(),
            role,
            version: member.now.as_ref().map_or_else(String::new, |now| now.version().to_owned()),
            health: health(member, readings.as_ref()),
            numbers: numbers.collect(),
        }
    }
}

/// The previous reading, unless the member has restarted since: its counts then started at 0.
fn earlier<'m>(member: &'m Member, now: &Reading) -> Option<&'m Reading> {
    let before = member.before.as_ref().map(Arc::as_ref)?;
    (before.role == now.role && before.number("uptime") <= now.number("uptime")).then_some(before)
}

fn health(member: &Member, readings: Option<&Readings<'_>>) -> Health {
    if let Some(error) = &member.error {
        return Health::Away(error.clone());
    }
    let Some(readings) = readings else { return Health::Unknown };
    readings.trouble().map_or(Health::Good, Health::Trouble)
}

/// The numbers of all rows of one role, by the role's [`columns`].
#[must_use]
pub fn totals(role: Role, rows: &[&Row]) -> Vec<Option<f64>> {
    let place = |name: &str| columns(role).iter().position(|column| column.name == name);
    let weighed = |at: usize, by: &str| {
        let by = place(by)?;
        let pairs = rows.iter().filter_map(|row| Some((row.numbers[at]?, row.numbers[by]?)));
        let (sum, weight) =
            pairs.fold((0.0, 0.0), |(sum, all), (number, by)| (sum + number * by, all + by));
        (weight > 0.0).then(|| sum / weight)
    };
    let total = |(at, column): (usize, &Column)| {
        let numbers = rows.iter().filter_map(|row| row.numbers[at]);
        match column.total {
            Sum => numbers.reduce(|one, other| one + other),
            Most => numbers.reduce(f64::max),
            MeanByGets => weighed(at, "gets_per_second"),
            MeanByMemory => weighed(at, "limit_bytes"),
        }
    };
    columns(role).iter().enumerate().map(total).collect()
}

/// Two answers of a member.
struct Readings<'m> {
    now: &'m Reading,
    before: Option<&'m Reading>,
}

impl Readings<'_> {
    /// The growth of a count, per second; none after a reset.
    fn rate(&self, name: &str) -> Option<f64> {
        self.now.rate_since(self.before?, name)
    }

    fn rate_of_clusters(&self, name: &str) -> Option<f64> {
        let grown = self.grown(|reading| Some(reading.of_clusters(name).sum()))?;
        Some(grown / self.seconds())
    }

    fn grown(&self, number: impl Fn(&Reading) -> Option<f64>) -> Option<f64> {
        let grown = number(self.now)? - number(self.before?)?;
        (grown >= 0.0).then_some(grown)
    }

    fn seconds(&self) -> f64 {
        let before = self.before.map_or(self.now.at, |before| before.at);
        self.now.at.duration_since(before).as_secs_f64().max(1e-6)
    }

    /// A time in microseconds, in seconds.
    fn micros(&self, name: &str) -> Option<f64> {
        Some(self.now.number(name)? / 1e6)
    }

    /// The ratio for the gets since the last answer.
    fn hit_ratio(&self) -> Option<f64> {
        let grown = |name: &'static str| self.grown(|reading| reading.number(name));
        let (hits, misses) = (grown("get_hits")?, grown("get_misses")?);
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    fn most(&self, name: &str) -> Option<f64> {
        self.now.of_clusters(name).reduce(f64::max)
    }

    fn sum(&self, name: &str) -> Option<f64> {
        self.now.of_clusters(name).reduce(|one, other| one + other)
    }

    fn is_zero(&self, name: &str) -> bool {
        self.now.number(name) == Some(0.0)
    }

    /// The fault that the member reports.
    fn trouble(&self) -> Option<String> {
        match self.now.role {
            Role::Server => {
                self.is_zero("accepting_conns").then(|| "accepts no connection".to_owned())
            }
            Role::Proxy => {
                let away = self.now.number("num_suspect_servers").filter(|away| *away > 0.0)?;
                let all = self.now.number("num_servers").unwrap_or(away);
                Some(format!("{away} of {all} servers are away"))
            }
            Role::Invalidator if self.is_zero("working") => None,
            Role::Invalidator => self.trouble_of_invalidator(),
        }
    }

    fn trouble_of_invalidator(&self) -> Option<String> {
        let away = self.now.of_clusters("connected").filter(|connected| *connected == 0.0).count();
        if self.is_zero("source_connected") {
            Some("the database's log is not followed".to_owned())
        } else if away > 0 {
            Some(format!("{away} clusters are away"))
        } else if self.most("canary_late").is_some_and(|late| late > 0.0) {
            Some("the canary is late".to_owned())
        } else if self.now.number("check_late").is_some_and(|late| late > 0.0) {
            Some("the check of the log is late".to_owned())
        } else {
            let gaps = self.grown(|reading| reading.number("gaps")).filter(|gaps| *gaps > 0.0)?;
            Some(format!("{gaps} gaps in the log"))
        }
    }
}
