//! The command line's flags that change routes, times and limits, by mcrouter's names.

use std::time::Duration;

use routes::{BigValues, Distances, TreeFlags};
use upstream::Waiting;

use crate::options::millis;

/// See the head of this file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RoutingFlags {
    /// Keys with an unknown routing prefix go where those without one go
    #[arg(long)]
    pub send_invalid_route_to_default: bool,

    /// Ask servers for values alone: every other command is answered as if there were nothing
    #[arg(long)]
    pub allow_only_gets: bool,

    /// Store values of more bytes than this in pieces, whatever their route; 0: none
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub big_value_split_threshold: usize,

    /// Pieces of a value that are asked for or stored at once; 0: all
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub big_value_batch_size: usize,

    /// Leave the flag 0x8000, which marks values in pieces, out of replies
    #[arg(long)]
    pub big_value_hide_reply_flag: bool,

    /// Tell of every request on stderr
    #[arg(long)]
    pub enable_logging_route: bool,

    /// Answer whatever a server did wrong with `SERVER_ERROR Remote error`
    #[arg(long)]
    pub group_remote_errors: bool,

    /// Take no notice of `shard_splits`
    #[arg(long)]
    pub disable_shard_split_route: bool,

    /// Ask servers whatever happens: none is knocked out
    #[arg(long)]
    pub disable_tko_tracking: bool,

    /// How often a connection that was not made in time is tried again, while those who asked wait
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub connect_timeout_retries: u32,

    /// Requests of a worker at one server of a pool at once, the others wait; 0: any number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub target_max_inflight_requests: u32,

    /// With --window: requests that may wait for room, for each worker; 0: 100,000
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub proxy_max_throttled_requests: usize,

    /// With --window: milliseconds that a request may wait for room; 0: any time
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub waiting_request_timeout_ms: u64,

    /// Milliseconds for an answer of pools whose `region` and `cluster` are those of the route prefix, whatever else is said
    #[arg(long, value_name = "MS", value_parser = zero_or_millis, default_value_t = 0)]
    pub within_cluster_timeout_ms: u64,

    /// The same of pools with its `region` alone
    #[arg(long, value_name = "MS", value_parser = zero_or_millis, default_value_t = 0)]
    pub cross_cluster_timeout_ms: u64,

    /// The same of pools with another `region`
    #[arg(long, value_name = "MS", value_parser = zero_or_millis, default_value_t = 0)]
    pub cross_region_timeout_ms: u64,
}

/// As [`millis`], but 0 says nothing.
fn zero_or_millis(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { millis(text) }
}

/// 0 says nothing.
fn some_millis(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

impl RoutingFlags {
    /// What holds for every tree.
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
            distances: Distances {
                within_cluster: some_millis(self.within_cluster_timeout_ms),
                cross_cluster: some_millis(self.cross_cluster_timeout_ms),
                cross_region: some_millis(self.cross_region_timeout_ms),
            },
        }
    }

    /// Every one and its value.
    pub(crate) fn values(&self) -> [(&'static str, u64); 16] {
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
            ("proxy_max_throttled_requests", self.proxy_max_throttled_requests as u64),
            ("waiting_request_timeout_ms", self.waiting_request_timeout_ms),
            ("within_cluster_timeout_ms", self.within_cluster_timeout_ms),
            ("cross_cluster_timeout_ms", self.cross_cluster_timeout_ms),
            ("cross_region_timeout_ms", self.cross_region_timeout_ms),
        ]
    }

    /// What may wait for room in the window.
    pub(crate) fn waiting(&self) -> Waiting {
        let max = match self.proxy_max_throttled_requests {
            0 => Waiting::default().max,
            max => max,
        };
        Waiting { max, timeout: some_millis(self.waiting_request_timeout_ms) }
    }
}
