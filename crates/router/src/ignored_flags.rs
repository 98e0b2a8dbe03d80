//! mcrouter's flags without an effect here, and those that are refused.
//!
//! The former are accepted with a warning, so that mcrouter's command lines work. They include no
//! flags that would change replies: an operator who needs one must learn that it is missing.

use std::ffi::{OsStr, OsString};

use clap::{ArgAction, CommandFactory};

use crate::options::Options;

/// Flags without a value, and the reason why each has no effect.
const SWITCHES: &[(&str, &str)] = &[
    ("--constantly-reload-configs", "the configuration file is checked continuously"),
    ("--cpu-cycles", "'stats' shows the CPU time"),
    ("-d", "messages go to stderr"),
    ("--delete-carbon-instance-upon-init-failure", "it belongs to the Caret protocol"),
    ("--destination-rate-limiting", "rate limits always apply, as in mcrouter's present build"),
    ("--disable-failure-logging", "failures are in 'stats', not in a log"),
    ("--disable-fibers-use-guard-pages", "there are no fibers"),
    ("--disable-miss-on-arith-errors", "errors are always returned"),
    ("--disable-miss-on-get-errors", "errors are always returned"),
    ("--disable-request-deadline-check", "memcached's protocols carry no deadlines"),
    ("--disable-send-to-main-shard-split", "mcrouter has removed it"),
    ("--dump-preprocessed-config-enabled", "'get __mcrouter__.preprocessed_config' shows it"),
    ("--enable-partial-reconfigure", "servers that stay keep their connections"),
    ("--enable-pass-through-mode", "it belongs to the Caret protocol"),
    ("--enable-qos", "packets are not marked"),
    ("--enable-ssl-tfo", "connections are long-lived"),
    ("--enable-server-compression", "it belongs to the Caret protocol"),
    ("--external-carbon-connection-logging-enabled", "it belongs to the Caret protocol"),
    ("--force-same-thread", "this is always the case"),
    ("--gets", "mcrouter has removed it"),
    ("--jemalloc-nodump-buffers", "memory is the system's"),
    ("--postprocess-logging-route", "mcrouter's open build ignores it as well"),
    ("--remote-thread", "the worker of a client asks the servers"),
    ("--retain-source-ip", "the client's address is always known"),
    ("--skip-sanity-checks", "mcrouter has removed it"),
    ("--ssl-connection-cache", "sessions are always resumed"),
    ("--ssl-handshake-offload", "handshakes are done by the workers"),
    ("--ssl-service-identity-authorization-enforce", "mcrouter's open build ignores it as well"),
    ("--ssl-service-identity-authorization-log", "mcrouter's open build ignores it as well"),
    ("--ssl-use-ktls12", "TLS is in the program"),
    ("--thread-affinity", "a worker has one connection to each server"),
    ("--tls-prefer-ocb-cipher", "mcrouter's open build ignores it as well"),
    ("--use-asynclog-version2", "'holdall spool --format as2' writes this format"),
    ("--use-mux-io-thread-pool", "--num-proxies sets the number of threads"),
];

/// Flags with a value, and the reason why each has no effect.
const VALUES: &[(&str, &str)] = &[
    ("--additional-ssl-service-identities", "mcrouter's open build ignores it as well"),
    ("--carbon-router-name", "this is a router for memcached"),
    ("--client-timeout", "idle clients stay connected"),
    ("--collect-rxmit-stats-every-hz", "the kernel's retransmissions are not monitored"),
    ("-D", "messages go to stderr"),
    ("--debug-fifo-root", "'holdall watch' shows the traffic"),
    ("--default-qos-class", "packets are not marked"),
    ("--default-qos-path", "packets are not marked"),
    ("--external-carbon-connection-log-max-burst", "it belongs to the Caret protocol"),
    ("--external-carbon-connection-log-rate-per-hour", "it belongs to the Caret protocol"),
    ("--external-carbon-connection-log-sample-rate", "it belongs to the Caret protocol"),
    ("--fibers-max-pool-size", "there are no fibers"),
    ("--fibers-pool-resize-period-ms", "there are no fibers"),
    ("--fibers-record-stack-size-every", "there are no fibers"),
    ("--fibers-stack-size", "there are no fibers"),
    ("--file-observer-sleep-before-update-ms", "a change is taken when it is seen"),
    ("-K", "the system's settings apply"),
    ("-i", "the system's settings apply"),
    ("-I", "the system's settings apply"),
    ("--keepalive-count", "the system's settings apply"),
    ("--keepalive-idle", "the system's settings apply"),
    ("--keepalive-interval", "the system's settings apply"),
    ("--log-path", "messages go to stderr"),
    ("-L", "messages go to stderr"),
    ("--logging-rtt-outlier-threshold-us", "'stats latency' has histograms"),
    ("--max-rxmit-reconnect-threshold", "the kernel's retransmissions are not monitored"),
    ("--max-client-outstanding-reqs", "the limit is 1024 per client"),
    (
        "--max-preprocessed-config-history",
        "'get __mcrouter__.preprocessed_config' shows the present one",
    ),
    ("--max-shadow-token-map-size", "a shadow's lease-sets have the tokens of the client"),
    ("--maximum-soft-tkos", "mcrouter has removed it"),
    ("--max-no-flush-event-loops", "writes wait for at most three turns"),
    ("--min-rxmit-reconnect-threshold", "the kernel's retransmissions are not monitored"),
    ("--num-listening-sockets", "there is one for each address"),
    ("--post-reconfiguration-delay-ms", "changes are taken as they come"),
    ("--proxy-cpu-interval-s", "'stats' shows the CPU time"),
    ("--proxy-max-inflight-shadow-requests", "shadows count as requests"),
    ("--reconfiguration-delay-ms", "a change is taken when it is seen"),
    ("--reconfiguration-jitter-ms", "a change is taken when it is seen"),
    ("--reqs-per-read", "mcrouter has removed it"),
    ("--reset-inactive-connection-interval", "idle connections to servers stay"),
    ("--rxmit-latency-deviation-us", "the kernel's retransmissions are not monitored"),
    ("--server-load-interval-ms", "memcached's protocols report no load"),
    ("--server-ssl-service-identity", "mcrouter's open build ignores it as well"),
    ("--service-name", "the names of files begin with 'mcrouter'"),
    ("--ssl-service-identity", "mcrouter's open build ignores it as well"),
    ("--stats-async-queue-length", "statistics are written by a thread of their own"),
    ("--tcp-listen-backlog", "it is 1024"),
    ("--tcp-rto-min", "the system's settings apply"),
    ("--tcp-zero-copy-threshold", "large values are sent like all others"),
    ("--tfo-queue-size", "the system's settings apply"),
    ("--thrift-compression-threshold", "it belongs to the Thrift protocol"),
    ("--tls-ticket-key-seed-path", "ticket keys are made at the start"),
    ("--xdp-tx-truncate-bytes", "mcrouter's open build ignores it as well"),
];

/// mcrouter's flags that the open build lacks, with a message for each.
const REFUSED: &[(&str, &str)] = &[
    ("--enable-axonlog", "mcrouter's open build does not have it; 'holdall spool' keeps deletes"),
    ("--enable-compression", "mcrouter's open build does not have it; clients may compress"),
    ("--enable-service-router", "Meta's Service Router is not published; use a PoolRoute"),
    ("--no-network", "mcrouter's present build does not have it; use a NullRoute"),
];

/// The first unsupported flag of mcrouter in `line`, and the reason.
#[must_use]
pub fn refused(line: &[OsString]) -> Option<String> {
    line.iter().find_map(|word| {
        let (name, _) = split(word);
        let (flag, reason) = REFUSED.iter().find(|(flag, _)| *flag == name)?;
        Some(format!("{flag} is not offered: {reason}"))
    })
}

/// Removes these flags from the command line `line`; returns the rest and a warning for each flag.
#[must_use]
pub fn without(line: impl Iterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let (mut kept, mut told) = (Vec::new(), Vec::new());
    let mut rest = line;
    while let Some(word) = rest.next() {
        let (name, has_value) = split(&word);
        let of = |flags: &[(&str, &str)]| {
            flags.iter().find(|(flag, _)| *flag == name).map(|(_, instead)| instead.to_string())
        };
        let instead = match of(SWITCHES) {
            Some(instead) => Some(instead),
            None => of(VALUES).inspect(|_| {
                if !has_value {
                    rest.next();
                }
            }),
        };
        match instead {
            Some(instead) => told.push(format!("warning: {name} has no effect: {instead}")),
            None => kept.extend(switched(word)),
        }
    }
    (kept, told)
}

/// A word without its value, if it is a switch here: mcrouter accepts `--enable-flush-cmd=1`, and
/// with `=0` the switch is off.
fn switched(word: OsString) -> Option<OsString> {
    let text = word.to_string_lossy();
    let Some((name, value)) = text.strip_prefix("--").and_then(|text| text.split_once('=')) else {
        return Some(word);
    };
    let command = Options::command();
    let is_switch = command.get_arguments().any(|argument| {
        argument.get_long() == Some(name) && matches!(argument.get_action(), ArgAction::SetTrue)
    });
    match value {
        _ if !is_switch => Some(word),
        "0" | "false" | "off" | "n" | "no" | "f" => None,
        "1" | "true" | "on" | "y" | "yes" | "t" => Some(format!("--{name}").into()),
        _ => Some(word),
    }
}

/// The flag's name, and whether its value is in the same word. mcrouter also accepts `_` for `-`.
fn split(word: &OsStr) -> (String, bool) {
    let text = word.to_string_lossy();
    let (name, has_value) = match text.split_once('=') {
        Some((name, _)) => (name, true),
        None => (&*text, false),
    };
    let name = if name.starts_with("--") { name.replace('_', "-") } else { name.to_owned() };
    (name, has_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_without_effect_are_accepted_with_a_warning() {
        let line = "route -p 5000 --log-path /x --fibers_stack_size=24 -L /log --enable-qos -f c \
            --use_asynclog_version2 --log-path";
        let (kept, told) = without(line.split(' ').map(OsString::from));
        assert_eq!(kept, ["route", "-p", "5000", "-f", "c"]);
        assert_eq!(told.len(), 6, "{told:?}");
        assert_eq!(told[1], "warning: --fibers-stack-size has no effect: there are no fibers");
    }

    #[test]
    fn switches_accept_the_values_of_mcrouter() {
        let line = "route --enable-flush-cmd=1 --asynclog-disable=0 --udp-gets=x --num-proxies=2";
        let (kept, told) = without(line.split(' ').map(OsString::from));
        assert_eq!(kept, ["route", "--enable-flush-cmd", "--udp-gets=x", "--num-proxies=2"]);
        assert!(told.is_empty(), "{told:?}");
    }

    /// None of them is a flag of this program.
    #[test]
    fn no_flag_of_this_program_is_ignored() {
        let command = Options::command();
        let ours: Vec<String> = command
            .get_arguments()
            .flat_map(|one| {
                [
                    one.get_long().map(|long| format!("--{long}")),
                    one.get_short().map(|c| format!("-{c}")),
                ]
            })
            .flatten()
            .collect();
        for (flag, _) in SWITCHES.iter().chain(VALUES) {
            assert!(!ours.iter().any(|one| one == flag), "{flag}");
        }
    }
}
