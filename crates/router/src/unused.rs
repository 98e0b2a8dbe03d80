//! mcrouter's flags that change nothing here: taken, so that its command lines work, and warned of. Flags that would change what
//! clients are answered are not among them: whoever needs one must learn that it is missing.

use std::ffi::{OsStr, OsString};

use clap::{ArgAction, CommandFactory};

use crate::options::Options;

/// A flag without a value here, and what there is instead.
const SWITCHES: &[(&str, &str)] = &[
    ("--constantly-reload-configs", "the configuration's file is looked at all the time"),
    ("--cpu-cycles", "'stats' has the processor's time"),
    ("-d", "lines for people go to stderr"),
    ("--delete-carbon-instance-upon-init-failure", "it is of the caret protocol"),
    ("--destination-rate-limiting", "rates hold always, as in mcrouter's present build"),
    ("--disable-failure-logging", "failures are in 'stats', not in a log"),
    ("--disable-fibers-use-guard-pages", "there are no fibers"),
    ("--disable-miss-on-arith-errors", "errors are always told"),
    ("--disable-miss-on-get-errors", "errors are always told"),
    ("--disable-request-deadline-check", "memcached's protocols tell no deadlines"),
    ("--disable-send-to-main-shard-split", "nor in mcrouter any more"),
    ("--dump-preprocessed-config-enabled", "'get __mcrouter__.preprocessed_config' tells it"),
    ("--enable-partial-reconfigure", "servers that stay keep their connections"),
    ("--enable-pass-through-mode", "it is of the caret protocol"),
    ("--enable-qos", "packets are not marked"),
    ("--enable-ssl-tfo", "connections stay for long"),
    ("--enable-server-compression", "it is of the caret protocol"),
    ("--external-carbon-connection-logging-enabled", "it is of the caret protocol"),
    ("--force-same-thread", "it is always so"),
    ("--gets", "nor in mcrouter any more"),
    ("--jemalloc-nodump-buffers", "memory is the system's"),
    ("--postprocess-logging-route", "nor in mcrouter's open build"),
    ("--remote-thread", "the worker of a client asks the servers"),
    ("--retain-source-ip", "the client's address is always known"),
    ("--skip-sanity-checks", "nor in mcrouter any more"),
    ("--ssl-connection-cache", "sessions are resumed always"),
    ("--ssl-handshake-offload", "handshakes are done by the workers"),
    ("--ssl-service-identity-authorization-enforce", "nor in mcrouter's open build"),
    ("--ssl-service-identity-authorization-log", "nor in mcrouter's open build"),
    ("--ssl-use-ktls12", "TLS is in the program"),
    ("--thread-affinity", "a worker has one connection to each server"),
    ("--tls-prefer-ocb-cipher", "nor in mcrouter's open build"),
    ("--use-mux-io-thread-pool", "--num-proxies says how many threads there are"),
];

/// The same of flags that have a value.
const VALUES: &[(&str, &str)] = &[
    ("--additional-ssl-service-identities", "nor in mcrouter's open build"),
    ("--carbon-router-name", "this is a router for memcached"),
    ("--client-timeout", "idle clients stay connected"),
    ("--collect-rxmit-stats-every-hz", "the kernel's retransmissions are not looked at"),
    ("-D", "lines for people go to stderr"),
    ("--debug-fifo-root", "'holdall watch' shows the traffic"),
    ("--default-qos-class", "packets are not marked"),
    ("--default-qos-path", "packets are not marked"),
    ("--external-carbon-connection-log-max-burst", "it is of the caret protocol"),
    ("--external-carbon-connection-log-rate-per-hour", "it is of the caret protocol"),
    ("--external-carbon-connection-log-sample-rate", "it is of the caret protocol"),
    ("--fibers-max-pool-size", "there are no fibers"),
    ("--fibers-pool-resize-period-ms", "there are no fibers"),
    ("--fibers-record-stack-size-every", "there are no fibers"),
    ("--fibers-stack-size", "there are no fibers"),
    ("--file-observer-sleep-before-update-ms", "a change is taken when it is seen"),
    ("-K", "the system's settings hold"),
    ("-i", "the system's settings hold"),
    ("-I", "the system's settings hold"),
    ("--keepalive-count", "the system's settings hold"),
    ("--keepalive-idle", "the system's settings hold"),
    ("--keepalive-interval", "the system's settings hold"),
    ("--log-path", "lines for people go to stderr"),
    ("-L", "lines for people go to stderr"),
    ("--logging-rtt-outlier-threshold-us", "'stats latency' has histograms"),
    ("--max-rxmit-reconnect-threshold", "the kernel's retransmissions are not looked at"),
    ("--max-client-outstanding-reqs", "a client has 1024 at the most"),
    (
        "--max-preprocessed-config-history",
        "'get __mcrouter__.preprocessed_config' tells the present one",
    ),
    ("--max-shadow-token-map-size", "a shadow's lease-sets have the tokens of the client"),
    ("--maximum-soft-tkos", "nor in mcrouter any more"),
    ("--max-no-flush-event-loops", "writes wait for three turns at the most"),
    ("--min-rxmit-reconnect-threshold", "the kernel's retransmissions are not looked at"),
    ("--num-listening-sockets", "there is one for each address"),
    ("--post-reconfiguration-delay-ms", "changes are taken as they come"),
    ("--proxy-cpu-interval-s", "'stats' has the processor's time"),
    ("--proxy-max-inflight-shadow-requests", "shadows count as requests"),
    ("--reconfiguration-delay-ms", "a change is taken when it is seen"),
    ("--reconfiguration-jitter-ms", "a change is taken when it is seen"),
    ("--reqs-per-read", "nor in mcrouter any more"),
    ("--reset-inactive-connection-interval", "idle connections to servers stay"),
    ("--rxmit-latency-deviation-us", "the kernel's retransmissions are not looked at"),
    ("--server-load-interval-ms", "memcached's protocols tell no load"),
    ("--server-ssl-service-identity", "nor in mcrouter's open build"),
    ("--service-name", "the names of files begin with 'mcrouter'"),
    ("--ssl-service-identity", "nor in mcrouter's open build"),
    ("--stats-async-queue-length", "statistics are written by a thread of their own"),
    ("--target-max-shadow-requests", "shadows count as requests"),
    ("--tcp-listen-backlog", "it is 1024"),
    ("--tcp-rto-min", "the system's settings hold"),
    ("--tcp-zero-copy-threshold", "large values are sent as the others"),
    ("--tfo-queue-size", "the system's settings hold"),
    ("--thrift-compression-threshold", "it is of the thrift protocol"),
    ("--tls-ticket-key-seed-path", "tickets' keys are made at the start"),
    ("--xdp-tx-truncate-bytes", "nor in mcrouter's open build"),
];

/// The command line without those, and a sentence for each.
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
            Some(instead) => told.push(format!("warning: {name} changes nothing here: {instead}")),
            None => kept.extend(switched(word)),
        }
    }
    (kept, told)
}

/// A word without its value, where it is a switch of ours: mcrouter takes `--enable-flush-cmd=1`, and with `=0` the switch is off.
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

/// The flag's name, and whether its value is in the same word. mcrouter takes `_` for `-`, too.
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
    fn what_changes_nothing_is_taken_and_told() {
        let line = "route -p 5000 --log-path /x --fibers_stack_size=24 -L /log --enable-qos -f c --log-path";
        let (kept, told) = without(line.split(' ').map(OsString::from));
        assert_eq!(kept, ["route", "-p", "5000", "-f", "c"]);
        assert_eq!(told.len(), 5, "{told:?}");
        assert_eq!(
            told[1],
            "warning: --fibers-stack-size changes nothing here: there are no fibers"
        );
    }

    #[test]
    fn switches_have_values_in_mcrouter() {
        let line = "route --enable-flush-cmd=1 --asynclog-disable=0 --udp-gets=x --num-proxies=2";
        let (kept, told) = without(line.split(' ').map(OsString::from));
        assert_eq!(kept, ["route", "--enable-flush-cmd", "--udp-gets=x", "--num-proxies=2"]);
        assert!(told.is_empty(), "{told:?}");
    }

    /// None of them is one of ours.
    #[test]
    fn flags_that_do_something_are_not_among_them() {
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
