//! Every flag in mcrouter's lists of options is known: it has the same effect, is accepted with a
//! warning, or is refused.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ffi::OsString;

use router::ignored_flags::{refused, without};
use router::options::{Options, Parser};

/// Flags with a value of their kind, from `mcrouter_options_list.h` and
/// `standalone_options_list.h`.
const VALUES: &str = "-p=5000 --port=5000 --ssl-port=5001 --listen-addresses=127.0.0.1 \
    --listen-sock-fd=3 --unix-domain-sock=/tmp/s --tcp-listen-backlog=9 --max-conns=9 \
    --num-listening-sockets=2 --client-timeout=1000 --tfo-queue-size=9 --num-proxies=2 \
    --proxy-threads=2 --core-multiplier=1 --fibers-max-pool-size=9 \
    --fibers-stack-size=9 --fibers-record-stack-size-every=9 --fibers-pool-resize-period-ms=9 \
    --config=file:x -f=x --config-file=x --config-str={} --config-params=a:b -R=/a/b/ \
    --route-prefix=/a/b/ --config-dump-root=x --max-dumped-config-age=9 \
    --reconfiguration-delay-ms=9 --reconfiguration-jitter-ms=9 --file-observer-poll-period-ms=9 \
    --file-observer-sleep-before-update-ms=9 --runtime-vars-file=x --pool-stats-config-file=x \
    -t=9 --server-timeout=9 --cross-region-timeout-ms=9 --cross-cluster-timeout-ms=9 \
    --within-cluster-timeout-ms=9 --connect-timeout-retries=1 --timeouts-until-tko=3 -r=9 \
    --probe-timeout-initial=9 --probe-timeout-max=99 --maximum-soft-tkos=9 \
    --waiting-request-timeout-ms=9 -K=9 -i=9 -I=9 --keepalive-count=9 --keepalive-interval=9 \
    --keepalive-idle=9 --reset-inactive-connection-interval=9 --tcp-rto-min=9 \
    --max-no-flush-event-loops=5 --default-qos-class=1 --default-qos-path=1 --pem-cert-path=x \
    --pem-key-path=x --pem-ca-path=x --server-pem-cert-path=x --server-pem-key-path=x \
    --server-pem-ca-path=x --xdp-tx-truncate-bytes=9 --target-max-inflight-requests=9 \
    --target-max-pending-requests=9 --target-max-shadow-requests=9 \
    --proxy-max-inflight-requests=9 --proxy-max-throttled-requests=9 -a=x --async-dir=x \
    --big-value-split-threshold=9000 --big-value-batch-size=9 -L=x --log-path=x --stats-root=x \
    --stats-logging-interval=9 --debug-fifo-root=x --logging-rtt-outlier-threshold-us=9 \
    --stats-async-queue-length=9 --carbon-router-name=Memcache --service-name=x \
    --tls-ticket-key-seed-path=x --max-client-outstanding-reqs=9";

/// Flags without a value.
const SWITCHES: &str = "--asynclog-disable --use-asynclog-version2 --disable-fibers-use-guard-pages \
    --destination-rate-limiting --enable-qos --ssl-connection-cache --constantly-reload-configs \
    --disable-reload-configs --disable-miss-on-get-errors --group-remote-errors \
    --send-invalid-route-to-default --enable-flush-cmd --disable-tko-tracking --allow-only-gets \
    --disable-failure-logging --cpu-cycles --test-mode --enable-logging-route --retain-source-ip \
    --remote-thread --thread-affinity --use-mux-io-thread-pool --validate-config --ssl-handshake-offload \
    --ssl-verify-peers --ssl-require-peer-certs --big-value-hide-reply-flag \
    --disable-shard-split-route --enable-pass-through-mode --dump-preprocessed-config-enabled \
    --disable-request-deadline-check";

/// Flags for features that the open build lacks.
const REFUSED: &str = "--no-network --enable-compression --enable-service-router --enable-axonlog";

/// Returns true if a command line with these words is accepted.
fn is_taken(words: &[&str]) -> bool {
    let words = ["holdall route"].iter().chain(words).map(OsString::from);
    Options::try_parse_from(without(words).0).is_ok()
}

#[test]
fn every_flag_of_mcrouter_is_known() {
    let values = VALUES.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    let unknown: Vec<_> = values
        .filter(|(name, value)| !is_taken(&[name, value]))
        .map(|(name, _)| name)
        .chain(SWITCHES.split_whitespace().filter(|name| !is_taken(&[name])))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for name in REFUSED.split_whitespace() {
        let reason = refused(&[name.into()]).unwrap();
        assert!(reason.starts_with(name) && reason.contains("is not offered: "), "{reason}");
    }
    assert!(!is_taken(&["--no-such-flag"]));
}
