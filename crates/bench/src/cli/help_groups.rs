//! The flag groups of commands that send a load.

use clap::Arg;

/// The flag in its group.
pub(super) fn grouped(flag: Arg) -> Arg {
    match heading(flag.get_id().as_str()) {
        Some(heading) => flag.help_heading(heading),
        None => flag,
    }
}

/// The group of a flag by its field name; `None` for positions and for pages such as `--help`.
fn heading(field: &str) -> Option<&'static str> {
    Some(match field {
        "servers" | "protocol" | "start" | "server_threads" | "group" | "pin_servers" => "Servers",
        "tls_ca" | "tls_insecure" | "tls_cert" | "tls_key" | "login" => "TLS and logins",
        "threads" | "connections" | "pipeline" | "reconnect" | "rate" | "arrival" | "pin"
        | "agents" => "Connections and pace",
        "multiget" | "ratio" | "keys" | "key_prefix" | "key_size" | "key_pattern"
        | "value_size" | "etc" | "ttl" | "preload" | "verify" | "seed" => "Requests",
        "time" | "warm_up" | "requests" | "sla" | "by" | "from" | "to" | "precision"
        | "repeats" => "Measuring",
        "power" | "power_login" | "power_ca" | "power_insecure" => "Power",
        "random" | "hot" | "random_weight" => "Score",
        "json" | "memtier_json" => "Results",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_flag_is_in_a_group() {
        let bench = crate::cli::interface();
        for name in ["run", "search", "sweep", "score"] {
            let command = bench.find_subcommand(name).unwrap();
            let flags = command.get_arguments().filter(|flag| !flag.is_positional());
            for flag in flags {
                assert!(flag.get_help_heading().is_some(), "{name}: {}", flag.get_id());
            }
        }
    }
}
