//! The parts of each request's time, and the stages made from them.

use anyhow::Result;
use hdrhistogram::Histogram;

use super::{Stage, StagesResult, Times};

/// One request in this number counts among the slowest.
const SLOWEST_ONE_IN: usize = 100;

/// The moments of one request, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    /// The key is chosen.
    pub begin: u64,
    /// The request is given to the kernel.
    pub send: u64,
    /// The kernel passed it to the interface.
    pub sent: u64,
    /// The kernel received the reply's last segment.
    pub received: u64,
    /// The reply is read.
    pub end: u64,
}

/// A server's own times of one request, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerTimes {
    /// From the arrival of the request until the server read it, if its kernel reports that.
    pub wait: Option<u64>,
    /// Until the command is known.
    pub parse: u64,
    /// Until the reply is ready.
    pub execute: u64,
    /// Until the kernel has it.
    pub write: u64,
}

/// Times of one request between its moments, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    client: u64,
    sending: u64,
    /// Between the kernel's stamps: network and server.
    away: u64,
    receiving: u64,
    /// The server's part of `away`, if it reported that.
    server: ServerTimes,
    /// The rest of `away`.
    network: u64,
}

/// How much a server reports about each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportedTimes {
    /// Nothing.
    Nothing,
    /// Its working time.
    Work,
    /// The request's waiting time before that, too.
    WaitAndWork,
}

impl Parts {
    /// None if the moments are out of order: a clock was set.
    ///
    /// A reply may be received before the server's write returns. Time after that, or beyond
    /// `away`, does not count.
    pub(super) fn of(moments: &Moments, server: Option<ServerTimes>) -> Option<Self> {
        let Moments { begin, send, sent, received, end } = *moments;
        let away = received.checked_sub(sent)?;
        let ServerTimes { wait, parse, execute, write } = server.unwrap_or_default();
        let mut left = away;
        let mut take = |time: u64| {
            let taken = time.min(left);
            left -= taken;
            taken
        };
        let (wait, parse) = (wait.map(&mut take), take(parse));
        let (execute, write) = (take(execute), take(write));
        Some(Self {
            client: send.checked_sub(begin)?,
            sending: sent.checked_sub(send)?,
            away,
            receiving: end.checked_sub(received)?,
            server: ServerTimes { wait, parse, execute, write },
            network: left,
        })
    }

    const fn whole(&self) -> u64 {
        self.client + self.sending + self.away + self.receiving
    }
}

impl StagesResult {
    /// Makes stages from the parts of all requests.
    pub(super) fn divide(&mut self, all: &mut [Parts], told: ReportedTimes) -> Result<()> {
        all.sort_by_key(Parts::whole);
        let count = all.len().div_ceil(SLOWEST_ONE_IN);
        let slowest = &all[all.len() - count..];
        let times = |pick: &dyn Fn(&Parts) -> u64| times(all, slowest, pick);
        self.whole = times(&Parts::whole)?;
        let away = times(&|parts| parts.away)?;
        let sending = times(&|parts| parts.sending)?;
        let receiving = times(&|parts| parts.receiving)?;
        let server = if told == ReportedTimes::Nothing {
            let command = self.server_get.map(|time| same(time.clamp(0.0, away.mean)));
            command.map(|times| derived("5", "server: command", times)).into_iter().collect()
        } else {
            vec![
                measured("5", "server: parse", times(&|parts| parts.server.parse)?),
                measured("5", "server: execute", times(&|parts| parts.server.execute)?),
                measured("6", "server: stack, sending", times(&|parts| parts.server.write)?),
            ]
        };
        let [network, wait] = if told == ReportedTimes::WaitAndWork {
            let wait = times(&|parts| parts.server.wait.unwrap_or(0))?;
            [measured("3, 7", NETWORK, times(&|parts| parts.network)?), measured("4", WAIT, wait)]
        } else {
            let sum = |pick: fn(&Times) -> f64| server.iter().map(|stage| pick(&stage.times)).sum();
            let (known, known_slowest): (f64, f64) =
                (sum(|times| times.mean), sum(|times| times.slowest));
            // The server has measured it; a handshake only approximates the network.
            let network = network(self.handshake, &sending, &receiving, away.mean - known);
            let rest = Times {
                mean: away.mean - network - known,
                slowest: (away.slowest - network - known_slowest).max(0.0),
                p50: None,
                p99: None,
            };
            let rest = match (told, self.server_get) {
                (ReportedTimes::Nothing, Some(_)) => derived("4, 6", WAIT, rest),
                (ReportedTimes::Nothing, None) => {
                    derived("4, 5, 6", "server: stack, wake-up, command", rest)
                }
                _ => derived("4", WAIT, rest),
            };
            [derived("3, 7", NETWORK, same(network)), rest]
        };
        self.stages = vec![
            measured("1", "client: key, request", times(&|parts| parts.client)?),
            measured("2", "client: stack, sending", sending),
            network,
            wait,
        ];
        self.stages.extend(server);
        self.stages.push(measured("8", "client: stack, receiving", receiving));
        Ok(())
    }
}

const NETWORK: &str = "network, there and back";
const WAIT: &str = "server: stack, wake-up";

fn measured(guide: &str, name: &str, times: Times) -> Stage {
    Stage { name: name.to_owned(), guide: guide.to_owned(), is_measured: true, times }
}

fn derived(guide: &str, name: &str, times: Times) -> Stage {
    Stage { is_measured: false, ..measured(guide, name, times) }
}

/// Times of which only the mean is known.
const fn same(mean: f64) -> Times {
    Times { mean, slowest: mean, p50: None, p99: None }
}

/// The network both ways, in microseconds: a handshake minus the part of the client's own stacks,
/// and at most `most`.
fn network(handshake: f64, sending: &Times, receiving: &Times, most: f64) -> f64 {
    let stacks = sending.p50.unwrap_or(0.0) + receiving.p50.unwrap_or(0.0);
    (handshake - stacks).clamp(0.0, most.max(0.0))
}

#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a request")]
fn times(all: &[Parts], slowest: &[Parts], pick: &dyn Fn(&Parts) -> u64) -> Result<Times> {
    let mean = |some: &[Parts]| {
        some.iter().map(|parts| pick(parts) as f64).sum::<f64>() / some.len() as f64 / 1000.0
    };
    let mut histogram = Histogram::<u64>::new(3)?;
    for parts in all {
        histogram.record(pick(parts))?;
    }
    let at = |quantile| Some(histogram.value_at_quantile(quantile) as f64 / 1000.0);
    Ok(Times { mean: mean(all), slowest: mean(slowest), p50: at(0.5), p99: at(0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::stages::{SCHEMA, SCHEMA_VERSION};

    fn result(server_get: Option<f64>) -> StagesResult {
        StagesResult {
            schema: SCHEMA.to_owned(),
            version: SCHEMA_VERSION,
            command: Vec::new(),
            started: 0,
            host: Host::here(),
            server: "10.0.0.1:11211".to_owned(),
            is_loopback: false,
            requests: 100,
            left_out: 0,
            handshake: 30.0,
            server_get,
            stages: Vec::new(),
            whole: Times::default(),
        }
    }

    /// A hundred requests: 1 us, 4 us, 50 us and 6 us; the slowest one has 500 us away.
    fn requests(server: Option<ServerTimes>) -> Vec<Parts> {
        let received = |away: u64| Moments {
            begin: 0,
            send: 1_000,
            sent: 5_000,
            received: 5_000 + away,
            end: 11_000 + away,
        };
        let mut all = vec![Parts::of(&received(50_000), server).unwrap(); 100];
        all[7] = Parts::of(&received(500_000), server).unwrap();
        all
    }

    #[test]
    fn stages_sum_to_the_whole_time() {
        for server_get in [Some(2.0), None, Some(1e9)] {
            let mut result = result(server_get);
            result.divide(&mut requests(None), ReportedTimes::Nothing).unwrap();
            let sum: f64 = result.stages.iter().map(|stage| stage.times.mean).sum();
            assert!((sum - result.whole.mean).abs() < 1e-6, "{sum} {}", result.whole.mean);
            let slowest: f64 = result.stages.iter().map(|stage| stage.times.slowest).sum();
            assert!((slowest - 511.0).abs() < 1e-6, "{slowest}");
            let count = if server_get.is_some() { 6 } else { 5 };
            assert_eq!(result.stages.len(), count);
            assert!(result.stages.iter().all(|stage| stage.times.mean >= 0.0));
        }
    }

    #[test]
    fn time_between_stamps_is_split_by_estimates() {
        let mut result = result(Some(2.0));
        result.divide(&mut requests(None), ReportedTimes::Nothing).unwrap();
        let [_, _, network, stacks, command, _] = &result.stages[..] else { panic!() };
        // 30 us less 4 and 6.
        assert!((network.times.mean - 20.0).abs() < 0.1, "{network:?}");
        assert!((stacks.times.mean - 32.5).abs() < 0.1, "{stacks:?}");
        assert_eq!((command.times.mean, command.is_measured), (2.0, false));
        let shown = result.shown();
        assert!(shown.contains("3, 7     network, there and back             20.0"), "{shown}");
        assert!(shown.contains("derived") && !shown.contains("no wire"), "{shown}");
    }

    #[test]
    fn a_slow_handshake_yields_no_negative_stage() {
        let mut result = result(Some(2.0));
        result.handshake = 1e6;
        result.divide(&mut requests(None), ReportedTimes::Nothing).unwrap();
        assert!(result.stages.iter().all(|stage| stage.times.mean >= 0.0), "{result:?}");
        assert_eq!(result.stages[4].times.mean, 2.0, "what the server has measured stays");
    }

    #[test]
    fn reported_server_times_count_and_the_rest_is_its_stack() {
        let mut result = result(Some(2.0));
        let server = ServerTimes { wait: None, parse: 300, execute: 700, write: 9_000 };
        result.divide(&mut requests(Some(server)), ReportedTimes::Work).unwrap();
        let guide: Vec<_> = result.stages.iter().map(|stage| stage.guide.as_str()).collect();
        assert_eq!(guide, ["1", "2", "3, 7", "4", "5", "5", "6", "8"]);
        let means: Vec<_> = result.stages.iter().map(|stage| stage.times.mean).collect();
        // 54.5 us are away on average: 20 in the network, 10 by the server's report.
        for (mean, expected) in means.iter().zip([1.0, 4.0, 20.0, 24.5, 0.3, 0.7, 9.0, 6.0]) {
            assert!((mean - expected).abs() < 0.1, "{means:?}");
        }
        assert!((means.iter().sum::<f64>() - result.whole.mean).abs() < 1e-6);
        let slowest: f64 = result.stages.iter().map(|stage| stage.times.slowest).sum();
        assert!((slowest - 511.0).abs() < 1e-6, "{slowest}");
        let median = result.stages[6].times.p50.unwrap();
        assert!((median - 9.0).abs() < 0.1, "each request has its own: {median}");
        result.server_get = None;
        assert!(!result.shown().contains("does not tell"), "{}", result.shown());
    }

    #[test]
    fn waiting_in_the_servers_stack_is_not_network_time() {
        let mut result = result(Some(2.0));
        let server = ServerTimes { wait: Some(15_000), parse: 300, execute: 700, write: 9_000 };
        result.divide(&mut requests(Some(server)), ReportedTimes::WaitAndWork).unwrap();
        assert!(result.stages.iter().all(|stage| stage.is_measured), "{result:?}");
        let stage = |guide| result.stages.iter().find(|stage| stage.guide == guide).unwrap().times;
        // 50 us away less 25 by the server's report; the slowest request was 500 away.
        assert!((stage("4").mean - 15.0).abs() < 0.1, "{result:?}");
        let network = stage("3, 7");
        assert!((network.p50.unwrap() - 25.0).abs() < 0.1, "{network:?}");
        assert!((network.slowest - 475.0).abs() < 0.1, "{network:?}");
        let shown = result.shown();
        assert!(!shown.contains("derived") && !shown.contains("handshake"), "{shown}");
        let sum: f64 = result.stages.iter().map(|stage| stage.times.mean).sum();
        assert!((sum - result.whole.mean).abs() < 1e-6);
    }

    #[test]
    fn out_of_order_moments_are_skipped() {
        let good = Moments { begin: 1, send: 2, sent: 3, received: 5, end: 9 };
        let parts = Parts::of(&good, None).unwrap();
        assert_eq!((parts.client, parts.sending, parts.away, parts.receiving), (1, 1, 2, 4));
        assert_eq!(Parts::of(&Moments { sent: 1, ..good }, None), None);
    }

    #[test]
    fn server_times_are_capped_at_the_round_trip() {
        let moments = Moments { begin: 0, send: 0, sent: 0, received: 100, end: 100 };
        let server =
            |parse, execute, write| Some(ServerTimes { wait: None, parse, execute, write });
        let counted = |told| Parts::of(&moments, told).unwrap().server;
        assert_eq!(counted(server(20, 30, 40)), server(20, 30, 40).unwrap());
        assert_eq!(counted(server(20, 30, 90)), server(20, 30, 50).unwrap());
        assert_eq!(counted(server(u64::MAX, u64::MAX, 1)), server(100, 0, 0).unwrap());
    }

    #[test]
    fn a_saved_result_can_be_read() {
        let mut result = result(None);
        result.divide(&mut requests(None), ReportedTimes::Nothing).unwrap();
        let json = serde_json::to_string(&result).unwrap();
        assert_eq!(StagesResult::read(&json).unwrap().shown(), result.shown());
        assert!(StagesResult::read(&json.replace("\"version\":1", "\"version\":2")).is_err());
    }
}
