//! The groups of flags in `holdall route --help`.

use clap::Arg;

/// Puts the flag into its group.
pub(crate) fn grouped(flag: Arg) -> Arg {
    match heading(flag.get_id().as_str()) {
        Some(heading) => flag.help_heading(heading),
        None => flag,
    }
}

/// The group of a flag by the name of its field; `None` for pages such as `--help`, and for flags
/// whose structure names its group.
fn heading(field: &str) -> Option<&'static str> {
    Some(match field {
        "config"
        | "config_file"
        | "config_str"
        | "config_params"
        | "route_prefix"
        | "disable_reload_configs"
        | "file_observer_poll_period_ms"
        | "config_dump_root"
        | "max_dumped_config_age"
        | "runtime_vars_file"
        | "validate_config" => "Configuration",
        "ports" | "ssl_ports" | "listen_addresses" | "listen_sock_fd" | "unix_domain_sock"
        | "max_conns" | "client_memory_max" | "serve_cluster" | "drain" => "Clients",
        "num_proxies" | "gather_below" | "core_multiplier" | "core_multiplier_threshold" => {
            "Threads"
        }
        "server_timeout"
        | "timeouts_until_tko"
        | "probe_timeout_initial"
        | "probe_timeout_max"
        | "target_max_pending_requests"
        | "udp_gets"
        | "udp_timeout"
        | "window" => "Servers",
        "delete_hold_off" | "enable_flush_cmd" | "async_dir" => "Deletes",
        "verbosity"
        | "test_mode"
        | "stats_root"
        | "stats_logging_interval"
        | "pool_stats_config_file"
        | "metrics"
        | "console"
        | "otlp"
        | "trace_sample" => "Observing",
        _ if field.starts_with("discovery_") => "Discovery",
        _ if field.contains("asynclog_") => "Deletes",
        _ if field.starts_with("log_") => "Observing",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::options::Options;

    #[test]
    fn every_flag_is_in_a_group() {
        let command = Options::command();
        let lone = command.get_arguments().filter(|flag| flag.get_help_heading().is_none());
        let lone: Vec<_> = lone.map(|flag| flag.get_id().as_str()).collect();
        assert_eq!(lone, Vec::<&str>::new());
    }
}
