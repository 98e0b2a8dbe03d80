//! The answers to the page's requests, as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use doctor::Host;
use serde_json::{Value, json};
use tools::{Reading, Role};
use top::Member;

use crate::key::{self, fault};
use crate::routes::Source;
use crate::servers::{Change, ChangeRequest};
use crate::slabs::slabs;
use crate::tier::Tier;

/// The data for the answers.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) tier: Arc<Tier>,
    /// The proxy's configuration.
    pub(crate) config: Option<Source>,
}

/// The reason why there is no answer.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum QueryError {
    /// There is no such path or member.
    Unknown,
    /// The request is wrong.
    Wrong(String),
}

impl Answers {
    /// The answer to a path with its parameters. It may query servers, and thus take their timeout.
    pub(crate) fn of(
        &self,
        path: &str,
        parameters: &BTreeMap<String, String>,
    ) -> Result<Value, QueryError> {
        let of = |name: &str| parameters.get(name).map_or("", String::as_str);
        match path {
            "/api/history" => self.tier.history(of("of")).ok_or(QueryError::Unknown),
            "/api/member" => self.member(of("address")),
            "/api/samples" => Ok(self.samples()),
            "/api/slabs" => self.slabs(of("address")),
            "/api/key" => self.key(of("key"), of("op")),
            "/api/routes" => Ok(self.config.as_ref().map_or(Value::Null, Source::shown)),
            "/api/change" => self.change(of("action"), of("server"), of("pool")),
            "/api/invalidation" => Ok(self.invalidation()),
            "/api/advice" => Ok(self.advice()),
            "/api/doctor" => Ok(json!(doctor::examine(&Host::at("/".as_ref()), &[]))),
            _ => Err(QueryError::Unknown),
        }
    }

    fn find(&self, address: &str) -> Result<Member, QueryError> {
        let mut members = self.tier.members().into_iter();
        members.find(|member| member.target.address == address).ok_or(QueryError::Unknown)
    }

    /// All statistics of one member.
    fn member(&self, address: &str) -> Result<Value, QueryError> {
        let member = self.find(address)?;
        let mut stats = BTreeMap::new();
        for reading in [&member.details, &member.now].into_iter().flatten() {
            stats.extend(reading.stats.iter());
        }
        Ok(json!({"address": address, "error": member.error, "stats": stats}))
    }

    /// The estimates from samples of every server that has them.
    fn samples(&self) -> Value {
        let members = self.tier.members();
        let with = members.iter().filter_map(|member| Some((member, member.details.as_ref()?)));
        let servers = with.filter(|(_, details)| details.role == Role::Server);
        Value::Array(servers.map(|(member, details)| samples(member, details)).collect())
    }

    fn slabs(&self, address: &str) -> Result<Value, QueryError> {
        let member = self.find(address)?;
        let found = slabs(&member.target.address, &self.tier.options);
        Ok(found.unwrap_or_else(|error| json!({"error": error.to_string()})))
    }

    fn key(&self, key: &str, operation: &str) -> Result<Value, QueryError> {
        if let Some(why) = fault(key) {
            return Err(QueryError::Wrong(why.to_owned()));
        }
        let operation = if operation.is_empty() { "get" } else { operation };
        let servers = self.tier.servers();
        Ok(key::look(key, operation, self.config.as_ref(), &servers, &self.tier.options))
    }

    /// The effect of draining or adding a server.
    fn change(&self, action: &str, server: &str, pool: &str) -> Result<Value, QueryError> {
        let wish = ChangeRequest::of(action, server, pool).ok_or(QueryError::Unknown)?;
        let source = self.config.as_ref().ok_or(QueryError::Unknown)?;
        let change = Change::of(&wish, source).map_err(QueryError::Wrong)?;
        Ok(change.shown())
    }

    /// The invalidators' statistics of clusters, and the servers' of stale values, leases and
    /// flushes. For an unavailable invalidator, there is the reason, and the clusters that it named
    /// last; a member that never answered may be one.
    fn invalidation(&self) -> Value {
        let (mut invalidators, mut servers, mut unknown) = (Vec::new(), Vec::new(), 0);
        for member in self.tier.members() {
            let Some(now) = member.now else {
                unknown += 1;
                continue;
            };
            let address = &member.target.address;
            match now.role {
                Role::Invalidator => invalidators.push(json!({
                    "address": address, "error": member.error, "clusters": clusters(&now),
                    "check_age_ms": now.number("check_age_ms"),
                    "check_late": now.number("check_late"),
                })),
                Role::Server if member.error.is_none() => {
                    let named =
                        STALENESS.iter().filter_map(|name| Some((*name, now.number(name)?)));
                    let stats: BTreeMap<&str, f64> = named.collect();
                    servers.push(json!({"address": address, "stats": stats}));
                }
                Role::Proxy | Role::Server => {}
            }
        }
        json!({"invalidators": invalidators, "servers": servers, "unknown": unknown})
    }

    /// The advice on the tier, from the last two full answers.
    fn advice(&self) -> Value {
        let mut tier = advice::Tier::default();
        let mut waiting = 0;
        for member in self.tier.members() {
            let address = member.target.address;
            match (member.error, member.details_before, member.details) {
                (Some(why), ..) => tier.away.push((address, why)),
                (None, Some(before), Some(now)) => {
                    let (before, now) = ((*before).clone(), (*now).clone());
                    tier.members.push(advice::Member { address, before, now });
                }
                _ => waiting += 1,
            }
        }
        json!({"waiting": waiting, "advice": advice::advise(&tier)})
    }
}

/// A server's statistics about stale values.
const STALENESS: [&str; 7] = [
    "stale_hits",
    "stale_items",
    "lease_issued",
    "lease_waits",
    "lease_set_rejected",
    "holdoffs",
    "prefixes_invalidated",
];

/// `cluster:NAME:what` by name.
fn clusters(reading: &Reading) -> BTreeMap<&str, BTreeMap<&str, &str>> {
    let mut clusters: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for (name, value) in &reading.stats {
        let named = name.strip_prefix("cluster:").and_then(|rest| rest.rsplit_once(':'));
        if let Some((cluster, what)) = named {
            clusters.entry(cluster).or_default().insert(what, value);
        }
    }
    clusters
}

fn samples(member: &Member, details: &Reading) -> Value {
    let mut curve: Vec<(f64, f64, f64)> = Vec::new();
    let mut prefixes: BTreeMap<&str, BTreeMap<String, f64>> = BTreeMap::new();
    for (name, value) in &details.stats {
        let parts: Vec<&str> = name.split(':').collect();
        match parts[..] {
            ["mrc", factor, "hit_ratio"] => {
                let bytes = details.number(&format!("mrc:{factor}:bytes"));
                let factor = factor.trim_end_matches('x').parse();
                if let (Ok(factor), Some(bytes), Ok(ratio)) = (factor, bytes, value.parse()) {
                    curve.push((factor, bytes, ratio));
                }
            }
            ["workingset", time, prefix, what] => {
                if let Ok(number) = value.parse() {
                    let fields = prefixes.entry(prefix).or_default();
                    fields.insert(format!("{time}_{what}"), number);
                }
            }
            _ => {}
        }
    }
    curve.sort_by(|one, other| one.0.total_cmp(&other.0));
    let point = |point: &(f64, f64, f64)| {
        let (factor, bytes, ratio) = point;
        json!({"memory_factor": factor, "bytes": bytes, "hit_ratio": ratio})
    };
    let text = |name: &str| details.stats.get(name);
    json!({
        "address": member.target.address,
        "group": member.target.group,
        "limit_bytes": details.number("limit_maxbytes"),
        "gets_per_second": member.rate("cmd_get"),
        "sampled_reads": details.number("mrc:sampled_reads"),
        "curve": curve.iter().map(point).collect::<Vec<_>>(),
        "hour_bytes": details.number("workingset:hour:mean_bytes"),
        "day_bytes": details.number("workingset:day:mean_bytes"),
        "week_bytes": details.number("workingset:week:mean_bytes"),
        "eviction_policy": text("eviction:policy"),
        "newcomer_factor": text("eviction:newcomer_factor"),
        "weighs_size": text("eviction:weighs_size"),
        "prefixes": prefixes,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use plan::Target;
    use tools::Options;

    use super::*;

    fn answers() -> Answers {
        let target = Target { address: "127.0.0.1:1".to_owned(), group: "eu/a".to_owned() };
        let tier = Tier::start(vec![target], Options::default(), Duration::from_secs(3600));
        Answers { tier: tier.unwrap(), config: None }
    }

    fn ask(answers: &Answers, path: &str, pairs: &[(&str, &str)]) -> Result<Value, QueryError> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        answers.of(path, &owned.collect())
    }

    #[test]
    fn requests_for_unknown_objects_are_refused() {
        let answers = answers();
        for (path, pairs) in [
            ("/api/nothing", &[][..]),
            ("/api/history", &[("of", "10.0.0.9:1")]),
            ("/api/member", &[]),
            ("/api/slabs", &[("address", "10.0.0.9:1")]),
        ] {
            assert_eq!(ask(&answers, path, pairs), Err(QueryError::Unknown), "{path}");
        }
        let wrong = ask(&answers, "/api/key", &[("key", "a\r\nflush_all")]);
        assert!(matches!(wrong, Err(QueryError::Wrong(_))));
    }

    #[test]
    fn an_unavailable_member_appears_in_every_reply() {
        let answers = answers();
        let member = ask(&answers, "/api/member", &[("address", "127.0.0.1:1")]).unwrap();
        assert_eq!(member["stats"], json!({}));
        assert_eq!(ask(&answers, "/api/samples", &[]), Ok(json!([])));
        assert!(ask(&answers, "/api/history", &[("of", "server")]).is_ok());
        let key = ask(&answers, "/api/key", &[("key", "k")]).unwrap();
        assert_eq!(key["servers"][0]["state"], "unknown");
        let slabs = ask(&answers, "/api/slabs", &[("address", "127.0.0.1:1")]).unwrap();
        assert!(slabs["error"].is_string());
        assert!(ask(&answers, "/api/doctor", &[]).unwrap().is_array());
    }

    #[test]
    fn clusters_of_an_invalidator_are_separated() {
        let stats = [("cluster:a:b:lag_ms", "7"), ("cluster:c:lag_ms", "9"), ("lag_ms", "1")];
        let stats = stats.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (role, at, round_trip) = (Role::Invalidator, Instant::now(), Duration::ZERO);
        let reading = Reading { role, at, round_trip, stats };
        assert_eq!(
            json!(clusters(&reading)),
            json!({"a:b": {"lag_ms": "7"}, "c": {"lag_ms": "9"}})
        );
    }

    #[test]
    fn an_invalidator_shows_the_age_of_its_last_check() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let said = "STAT delivered_position 1\r\nSTAT cluster:a:lag_ms 7\r\n\
                    STAT check_age_ms 9000\r\nSTAT check_late 1\r\nEND\r\n";
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            // Kept open: an unavailable member has its last answer, too.
            std::thread::park();
        });
        let target = Target { address, group: String::new() };
        let options = Options { timeout: Duration::from_secs(600), ..Options::default() };
        let tier = Tier::start(vec![target], options, Duration::from_millis(50)).unwrap();
        while tier.members()[0].now.is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let found = Answers { tier, config: None }.invalidation();
        let invalidator = &found["invalidators"][0];
        assert_eq!(invalidator["clusters"], json!({"a": {"lag_ms": "7"}}));
        assert_eq!(
            (&invalidator["check_age_ms"], &invalidator["check_late"]),
            (&json!(9000.0), &json!(1.0))
        );
    }

    #[test]
    fn curve_and_prefixes_are_taken_from_the_statistics() {
        let stats = [
            ("mrc:2x:hit_ratio", "0.7"),
            ("mrc:2x:bytes", "200"),
            ("mrc:0.5x:hit_ratio", "0.3"),
            ("mrc:0.5x:bytes", "50"),
            ("workingset:hour:user:mean_bytes", "9"),
            ("workingset:hour:mean_bytes", "10"),
        ];
        let stats = stats.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (role, at, round_trip) = (Role::Server, Instant::now(), Duration::ZERO);
        let member = Member::new(Target { address: "a".to_owned(), group: String::new() });
        let found = samples(&member, &Reading { role, at, round_trip, stats });
        assert_eq!(found["curve"][0]["memory_factor"], 0.5);
        assert_eq!(found["curve"][1]["hit_ratio"], 0.7);
        assert_eq!(found["prefixes"]["user"]["hour_mean_bytes"], 9.0);
        assert_eq!(found["hour_bytes"], 10.0);
    }
}
