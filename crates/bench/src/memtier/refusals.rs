//! The reasons why flags of memtier_benchmark are refused.

/// The reason, and an alternative if there is one; empty for a supported flag.
pub(super) fn why(flag: &str) -> &'static str {
    match flag {
        "tls-protocols" => "TLS 1.2 and 1.3 are spoken, whichever the server prefers",
        "client-stats" => "results are kept for all connections together",
        "cluster-mode" => "keys are not placed by a Redis cluster's slots",
        "reconnect-on-error" | "max-reconnect-attempts" | "reconnect-backoff-factor" => {
            "a run ends when its server fails; --reconnect-interval opens connections anew"
        }
        "retry-on-error"
        | "max-retries"
        | "retry-backoff-ms"
        | "retry-backoff-factor"
        | "retry-on"
        | "max-retry-queue"
        | "failed-keys-file" => "a request that fails is counted and not sent again",
        "select-db" => "all keys are in Redis's database 0",
        "clients-start" | "clients-step" | "step-duration" => {
            "the number of connections is one for a run; `holdall bench sweep connections` has steps"
        }
        "statsd-host" | "statsd-port" | "statsd-prefix" | "statsd-run-label" | "graphite-port" => {
            "nothing is sent to StatsD; --json-out-file has each second"
        }
        "prometheus-port"
        | "prometheus-bind-addr"
        | "prometheus-run-label"
        | "prometheus-latency-buckets" => {
            "nothing is served to Prometheus; --json-out-file has each second"
        }
        "read-preference"
        | "read-preference-fallback"
        | "read-server"
        | "replica-clients"
        | "replicas-per-shard" => "gets and sets go to the same servers; replicas are not asked",
        "data-offset" | "wait-ratio" | "num-slaves" | "wait-timeout" => {
            "SETRANGE, GETRANGE and WAIT of Redis are not sent"
        }
        "data-import" | "generate-keys" | "no-expiry" => {
            "keys and values are not read from a file; `holdall bench hitrate` replays traces"
        }
        "verify-only" => "--data-verify compares each value while the load runs",
        "key-median" => "the middle of the keys is the middle of their range",
        "command"
        | "command-ratio"
        | "command-key-pattern"
        | "command-is-read"
        | "transaction"
        | "monitor-input"
        | "monitor-pattern"
        | "scan-incremental-iteration"
        | "scan-incremental-max-iterations" => "gets and sets alone are sent",
        "cpu-split" | "taskset" => "`holdall bench run --pin 2,3` binds threads to processors",
        _ => "",
    }
}
