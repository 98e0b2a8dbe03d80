//! The shape of a run of the workers, chosen by a seed: protocol, routes, limits, commands.

use std::time::Duration;

use certs::ClientOptions;
use testkit::Rng;

use simulation::handshake::{self, Rules};
use upstream::{Command, LOGIN_PATIENCE, Login, Settings, Tls, Waiting, Window};

/// The parameters of a run.
pub(super) struct Shape {
    pub(super) servers: usize,
    pub(super) workers: u32,
    pub(super) is_binary: bool,
    pub(super) has_udp: bool,
    /// The servers' requirements before they accept requests.
    pub(super) rules: Rules,
    /// Ejects a failing server: after this number of failures, and for this time.
    pub(super) ejects: Option<(u32, Duration)>,
    /// Some servers take over from failing ones.
    pub(super) fails_over: bool,
    pub(super) window: Option<(Window, Waiting)>,
    pub(super) settings: Settings,
    pub(super) lag_us: usize,
    pub(super) calls: u64,
    /// Some of the commands. With few, the same ones meet more often.
    pub(super) ops: Vec<Command>,
    pub(super) keys: usize,
}

impl Shape {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let ms = |count: usize| Duration::from_millis(count as u64);
        let timeout = ms(5 + rng.below(40));
        // A shorter one would leave a probe that is lost behind its connection its whole time.
        let probe_max = timeout.max(ms(10 + rng.below(40)));
        let is_binary = rng.one_in(3);
        let has_udp = !is_binary && rng.one_in(4);
        let ejects =
            (!is_binary && rng.one_in(5)).then(|| (*rng.pick(&[1, 2, 3]), ms(5 + rng.below(100))));
        let is_tls = ejects.is_none() && rng.one_in(5);
        let rules = Rules { tls: is_tls.then(|| handshake::tls(rng)), has_login: rng.one_in(5) };
        let has_udp = has_udp && !is_tls && !rules.has_login;
        let settings = Settings {
            timeout,
            connect_timeout: ms(5 + rng.below(40)),
            connect_retries: u32::from(rng.one_in(4)),
            timeouts_until_tko: *rng.pick(&[0, 1, 3]),
            probe_initial: probe_max / 4,
            probe_max,
            pending_max: *rng.pick(&[8, 100_000, 100_000]),
            unsent_bytes_max: *rng.pick(&[2000, 64 << 20, 64 << 20]),
            value_bytes_max: 1 << 20,
            tls: is_tls.then(|| Tls::open(ClientOptions::default()).expect("no files")),
            login: rules.has_login.then(|| Login::new(handshake::USER, handshake::PASSWORD)),
            udp_gets: has_udp.then_some(timeout / 2),
            ..Settings::default()
        };
        Self {
            servers: 1 + rng.below(4),
            workers: if rng.one_in(3) { 2 } else { 1 },
            is_binary,
            has_udp,
            rules,
            ejects,
            fails_over: ejects.is_none() && rng.one_in(3),
            window: match rng.below(6) {
                0 => Some((Window::Adaptive, Waiting::default())),
                1 => Some((Window::Fixed(3), Waiting { max: 50, timeout: Some(timeout) })),
                _ => None,
            },
            settings,
            lag_us: *rng.pick(&[0, 50, 3000]),
            calls: 150 + rng.below(250) as u64,
            ops: (0..=*rng.pick(&[0, 3, 20])).map(|_| *rng.pick(&OPS)).collect(),
            keys: *rng.pick(&[2, 10, 40]),
        }
    }

    /// Updates fail over only after failures that prove that they were not sent, so no update runs
    /// twice.
    pub(super) fn configuration(&self) -> (&str, String) {
        match self.ejects {
            Some((limit, retry)) => ("n.yml", self.of_twemproxy(limit, retry)),
            None => ("n.json", self.of_mcrouter()),
        }
    }

    fn of_twemproxy(&self, limit: u32, retry: Duration) -> String {
        let servers =
            (0..self.servers).map(|number| format!("   - {}:1\n", simulation::address(number)));
        format!(
            "A:\n  listen: 127.0.0.1:1\n  hash: murmur\n  auto_eject_hosts: true\n  server_failure_limit: {limit}\n  \
             server_retry_timeout: {}\n  servers:\n{}",
            retry.as_millis(),
            servers.collect::<String>()
        )
    }

    fn of_mcrouter(&self) -> String {
        let servers = |from: usize, step: usize| {
            let all = (from..self.servers).step_by(step);
            all.map(|number| format!("\"{}\"", simulation::address(number)))
                .collect::<Vec<_>>()
                .join(",")
        };
        let protocol = if self.is_binary { "binary" } else { "ascii" };
        let security = if self.rules.tls.is_some() { "tls" } else { "plain" };
        let pool = |name: &str, servers: String| {
            format!(
                r#""{name}": {{"servers": [{servers}], "protocol": "{protocol}", "security_mech": "{security}"}}"#
            )
        };
        if !self.fails_over || self.servers < 2 {
            let pool = pool("A", servers(0, 1));
            return format!(r#"{{"pools": {{{pool}}}, "route": "PoolRoute|A"}}"#);
        }
        let pools = [pool("A", servers(0, 2)), pool("B", servers(1, 2))].join(",");
        format!(
            r#"{{"pools": {{{pools}}}, "route": {{"type": "FailoverRoute",
            "children": ["PoolRoute|A", "PoolRoute|B"], "failover_errors": {{
            "gets": ["tko", "connect_error", "connect_timeout", "timeout", "remote_error", "busy"],
            "updates": ["tko", "connect_error", "connect_timeout", "busy"], "deletes": []}}}}}}"#
        )
    }

    /// The maximum time until a connection is usable or given up.
    pub(super) fn time_to_open(&self) -> Duration {
        let patience = if self.rules.has_login { LOGIN_PATIENCE } else { Duration::ZERO };
        self.settings.connect_timeout + patience
    }

    /// The maximum time of a call in microseconds; `None`: it may wait for the window.
    pub(super) fn limit_us(&self) -> Option<u64> {
        let Settings { timeout, connect_retries, udp_gets, .. } = self.settings;
        let connect_timeout = self.time_to_open();
        let lag = Duration::from_micros(self.lag_us as u64);
        let opening = (connect_timeout + lag) * (1 + connect_retries);
        // A server that hangs up on the probe gets the request on a new connection, twice at most.
        let connections = if self.is_binary { 1 } else { 3 };
        let tcp = (opening + timeout + lag) * connections;
        let udp = udp_gets.map_or(Duration::ZERO, |time| time + lag);
        let window = match self.window {
            None => Duration::ZERO,
            Some((_, waiting)) => waiting.timeout? + lag,
        };
        let one = window + tcp + udp;
        let all = if self.fails_over { one * 2 } else { one };
        u64::try_from(all.as_micros()).ok()
    }
}

/// Gets are most frequent, since they share lines.
const OPS: [Command; 24] = [
    Command::Get,
    Command::Get,
    Command::Get,
    Command::Get,
    Command::Get,
    Command::Get,
    Command::Gets,
    Command::Gat,
    Command::Gats,
    Command::LeaseGet,
    Command::Set,
    Command::Set,
    Command::Add,
    Command::Replace,
    Command::Append,
    Command::Prepend,
    Command::Cas,
    Command::Incr,
    Command::Decr,
    Command::Delete,
    Command::Touch,
    Command::MetaGet,
    Command::MetaSet,
    Command::MetaArithmetic,
];
