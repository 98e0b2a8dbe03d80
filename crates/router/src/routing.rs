//! Command-line options for routes, time limits and other limits, by mcrouter's names.

use std::time::Duration;

use routes::{BigValues, Distances, TreeFlags};
use upstream::Waiting;

use crate::flag_values::{WrongValue, millis};

/// Options for routes, time limits and other limits.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Routes")]
pub struct RoutingFlags {
    /// Route keys with an unknown routing prefix like keys without one
    #[arg(long)]
    pub send_invalid_route_to_default: bool,

    /// Forward gets only; answer every other command as if the key did not exist
    #[arg(long)]
    pub allow_only_gets: bool,

    /// Split values larger than this many bytes into pieces, on every route; 0 splits none
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub big_value_split_threshold: usize,

    /// Limit of pieces of one value in flight at a time; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub big_value_batch_size: usize,

    /// Clear the flag 0x8000, which marks split values, in replies
    #[arg(long)]
    pub big_value_hide_reply_flag: bool,

    /// Log every request on stderr
    #[arg(long)]
    pub enable_logging_route: bool,

    /// Reply to every server failure with `SERVER_ERROR remote error`
    #[arg(long)]
    pub group_remote_errors: bool,

    /// Ignore `shard_splits` in the configuration
    #[arg(long)]
    pub disable_shard_split_route: bool,

    /// Never mark a server as down (TKO)
    #[arg(long)]
    pub disable_tko_tracking: bool,

    /// Retries of a connection attempt that timed out, while its requests wait
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub connect_timeout_retries: u32,

    /// Limit of requests in flight from a worker to one server of a pool; others wait; 0 is no
    /// limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub target_max_inflight_requests: u32,

    /// Limit of shadows' requests from a worker to one server of a pool; more are dropped; 0 is no
    /// limit
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub target_max_shadow_requests: u32,

    /// With --window: limit of waiting requests, in each worker; 0 means 100,000
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub proxy_max_throttled_requests: usize,

    /// With --window: time limit for waiting requests, in milliseconds; 0 is no limit
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub waiting_request_timeout_ms: u64,

    /// Time limit for replies of pools in the region and cluster of the route prefix, in
    /// milliseconds; overrides other time limits
    #[arg(long, value_name = "MS", value_parser = zero_or_millis, default_value_t = 0)]
    pub within_cluster_timeout_ms: u64,

    /// Time limit for replies of pools in the region of the route prefix, another cluster, in
    /// milliseconds; overrides other time limits
    #[arg(long, value_name = "MS", value_parser = zero_or_millis, default_value_t = 0)]
    pub cross_cluster_timeout_ms: u64,

    /// Time limit for replies of pools in another region, in milliseconds; overrides other time
    /// limits
    #[arg(long, value_name = "MS", value_parser = zero_or_millis, default_value_t = 0)]
    pub cross_region_timeout_ms: u64,
}

/// Like [`millis`], and 0 for an option that is not set.
fn zero_or_millis(text: &str) -> Result<u64, WrongValue> {
    if text == "0" { Ok(0) } else { millis(text) }
}

/// `None` for 0, an option that is not set.
fn some_millis(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

impl RoutingFlags {
    /// The options that apply to every tree.
    pub(crate) fn tree(&self, workers: usize) -> TreeFlags {
        let big_values = BigValues {
            split_bytes: self.big_value_split_threshold,
            batch: self.big_value_batch_size,
            hides_flag: self.big_value_hide_reply_flag,
        };
        TreeFlags {
            workers: u32::try_from(workers).unwrap_or(1),
            send_invalid_route_to_default: self.send_invalid_route_to_default,
            allow_only_gets: self.allow_only_gets,
            big_values: (big_values.split_bytes > 0).then_some(big_values),
            enable_logging_route: self.enable_logging_route,
            group_remote_errors: self.group_remote_errors,
            disable_shard_split_route: self.disable_shard_split_route,
            target_max_inflight: self.target_max_inflight_requests,
            target_max_shadows: self.target_max_shadow_requests,
            distances: Distances {
                within_cluster: some_millis(self.within_cluster_timeout_ms),
                cross_cluster: some_millis(self.cross_cluster_timeout_ms),
                cross_region: some_millis(self.cross_region_timeout_ms),
            },
        }
    }

    /// Every option and its value.
    pub(crate) fn values(&self) -> [(&'static str, u64); 17] {
        [
            ("send_invalid_route_to_default", u64::from(self.send_invalid_route_to_default)),
            ("allow_only_gets", u64::from(self.allow_only_gets)),
            ("big_value_split_threshold", self.big_value_split_threshold as u64),
            ("big_value_batch_size", self.big_value_batch_size as u64),
            ("big_value_hide_reply_flag", u64::from(self.big_value_hide_reply_flag)),
            ("enable_logging_route", u64::from(self.enable_logging_route)),
            ("group_remote_errors", u64::from(self.group_remote_errors)),
            ("disable_shard_split_route", u64::from(self.disable_shard_split_route)),
            ("disable_tko_tracking", u64::from(self.disable_tko_tracking)),
            ("connect_timeout_retries", u64::from(self.connect_timeout_retries)),
            ("target_max_inflight_requests", u64::from(self.target_max_inflight_requests)),
            ("target_max_shadow_requests", u64::from(self.target_max_shadow_requests)),
            ("proxy_max_throttled_requests", self.proxy_max_throttled_requests as u64),
            ("waiting_request_timeout_ms", self.waiting_request_timeout_ms),
            ("within_cluster_timeout_ms", self.within_cluster_timeout_ms),
            ("cross_cluster_timeout_ms", self.cross_cluster_timeout_ms),
            ("cross_region_timeout_ms", self.cross_region_timeout_ms),
        ]
    }

    /// The limits of requests that wait for the window.
    pub(crate) fn waiting(&self) -> Waiting {
        let max = match self.proxy_max_throttled_requests {
            0 => Waiting::default().max,
            max => max,
        };
        Waiting { max, timeout: some_millis(self.waiting_request_timeout_ms) }
    }
}
