//! Log lines about servers that are knocked out, and that are back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use upstream::{Address, Report};

/// The minimum time between two lines about a server, as about a peer in `connections`.
const PAUSE: Duration = Duration::from_secs(1);

/// The servers as last logged.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    told: BTreeMap<Address, LoggedState>,
    was_verbose: bool,
}

/// The logged state of a server.
#[derive(Clone, Copy, Debug)]
struct LoggedState {
    is_out: bool,
    knockouts: u64,
    /// The time of the last line.
    at: Option<Instant>,
}

impl Outages {
    /// Logs servers that were knocked out, or came back, since the last call. Those with a very
    /// recent line come later, unless the log is verbose. A log that becomes verbose starts with
    /// the servers that are out.
    pub(crate) fn look(
        &mut self,
        reports: &[Report],
        is_verbose: bool,
        now: Instant,
        log: &impl Fn(&str),
    ) {
        if is_verbose && !self.was_verbose {
            self.told.clear();
        }
        self.was_verbose = is_verbose;
        self.told.retain(|known, _| reports.iter().any(|report| report.address == *known));
        for report in reports {
            let new = LoggedState { is_out: false, knockouts: 0, at: None };
            let told = self.told.entry(report.address.clone()).or_insert(new);
            let is_due = is_verbose || told.at.is_none_or(|at| now.duration_since(at) >= PAUSE);
            if let Some(line) = line(report, *told).filter(|_| is_due) {
                log(&line);
                let (is_out, knockouts) = (report.state.is_out(), report.tko_count);
                *told = LoggedState { is_out, knockouts, at: Some(now) };
            }
        }
    }
}

/// The line about a server, if there is news.
fn line(report: &Report, told: LoggedState) -> Option<String> {
    let Report { address, tko_count, tko_reason, .. } = report;
    let fresh = tko_count.saturating_sub(told.knockouts);
    match (report.state.is_out(), told.is_out) {
        (true, false) if fresh <= 1 => {
            Some(format!("warning: the server {address} is knocked out: {tko_reason}"))
        }
        (true, _) if fresh > 0 => Some(format!(
            "warning: the server {address} is knocked out: {tko_reason} ({fresh} times since the \
             last line)"
        )),
        (false, true) => Some(format!("the server {address} is back")),
        (true, _) | (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::SocketAddr;

    use upstream::{Protocol, State};

    use super::*;

    fn server(last: u8, state: State, tko_count: u64) -> Report {
        Report {
            address: SocketAddr::from(([10, 0, 0, last], 11211)).into(),
            timeout: Duration::from_secs(1),
            protocol: Protocol::Text,
            is_encrypted: false,
            state,
            tko_count,
            tko_reason: "Connection error".to_owned(),
            totals: upstream::Totals::default(),
        }
    }

    #[test]
    fn outages_log_one_line_per_second_unless_verbose() {
        let (mut outages, begin) = (Outages::default(), Instant::now());
        let mut look = |ms: u64, is_verbose: bool, state: State, tko_count: u64| {
            let lines = RefCell::new(Vec::new());
            let log = |line: &str| lines.borrow_mut().push(line.replace("the server 10.0.0", ""));
            let reports = [server(1, state, tko_count), server(2, State::Up, 0)];
            let now = begin + Duration::from_millis(ms);
            outages.look(&reports, is_verbose, now, &log);
            lines.into_inner()
        };
        let out = "warning: .1:11211 is knocked out: Connection error";
        assert_eq!(look(0, false, State::Up, 0), [""; 0]);
        assert_eq!(look(100, false, State::HardTko, 1), [out]);
        assert_eq!(look(200, false, State::Up, 1), [""; 0]);
        assert_eq!(look(300, false, State::HardTko, 2), [""; 0]);
        assert_eq!(look(400, false, State::SoftTko, 3), [""; 0]);
        let more = format!("{out} (2 times since the last line)");
        assert_eq!(look(1100, false, State::HardTko, 3), [more]);
        assert_eq!(look(2100, false, State::HardTko, 3), [""; 0]);
        assert_eq!(look(2200, false, State::Up, 3), [".1:11211 is back"]);
        assert_eq!(look(2300, false, State::HardTko, 4), [""; 0]);
        assert_eq!(look(2400, true, State::HardTko, 4).len(), 1);
        assert_eq!(look(2500, true, State::Up, 4), [".1:11211 is back"]);
        assert_eq!(look(2600, true, State::HardTko, 5), [out]);
    }
}
