//! `RateLimitRoute`: passes a number of requests per second of each class. The others are answered
//! as misses.

use std::sync::{Arc, Mutex, PoisonError};

use super::null::default_outcome;
use super::{Answer, Pick, Route, RouteRef};
use crate::context::Context;
use upstream::{CommandClass, OwnedReply, Request};

/// A bucket of tokens, filled by time. Workers share it.
#[derive(Debug)]
pub struct Bucket {
    /// Tokens per second.
    rate: f64,
    /// Maximum number of tokens, and their number at the start.
    burst: f64,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    tokens: f64,
    filled_us: u64,
}

/// A route's limits for each class of requests; `None` is any number.
#[derive(Debug)]
pub struct Buckets {
    /// For get-like commands.
    pub gets: Option<Bucket>,
    /// For update-like and arithmetic ones.
    pub sets: Option<Bucket>,
    /// For deletes.
    pub deletes: Option<Bucket>,
}

impl Bucket {
    /// Adds `rate` tokens per second, up to `burst`, and starts with `burst`.
    #[must_use]
    pub fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, level: Mutex::new(Level { tokens: burst, filled_us: 0 }) }
    }

    fn take(&self, now_us: u64) -> bool {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        // Another worker's clock may be slightly ahead.
        let passed_us = now_us.saturating_sub(level.filled_us);
        level.filled_us += passed_us;
        level.tokens = (level.tokens + self.rate * passed_us as f64 / 1e6).min(self.burst);
        let has_one = level.tokens >= 1.0;
        level.tokens -= if has_one { 1.0 } else { 0.0 };
        has_one
    }
}

/// Passes a number of requests per second of each class.
#[derive(Debug)]
pub struct RateLimitRoute {
    /// The child.
    pub target: RouteRef,
    /// The limits.
    pub buckets: Arc<Buckets>,
    /// The child for requests over the limit.
    pub fallback: Option<RouteRef>,
}

impl RateLimitRoute {
    fn allows(&self, cx: &Context, request: &Request<'_>) -> bool {
        let bucket = match request.op.class() {
            CommandClass::Get => &self.buckets.gets,
            CommandClass::Update | CommandClass::Arithmetic => &self.buckets.sets,
            CommandClass::Delete => &self.buckets.deletes,
            CommandClass::Other => &None,
        };
        bucket.as_ref().is_none_or(|bucket| bucket.take(cx.now_us()))
    }
}

impl Route for RateLimitRoute {
    fn name(&self) -> String {
        "rate-limit".to_owned()
    }

    fn pick(&self, _cx: &Context, _request: &mut Request<'_>) -> Pick {
        // Only the future takes a token, so that it is taken once.
        Pick::Run
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if self.allows(cx, &request) {
            return self.target.route(cx, request);
        }
        match &self.fallback {
            Some(fallback) => fallback.route(cx, request),
            None => Box::pin(async move { OwnedReply::of(default_outcome(request.op)) }),
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        std::iter::once(&self.target).chain(&self.fallback).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_its_burst_and_then_its_rate() {
        let bucket = Bucket::new(10.0, 3.0);
        let taken = |now_us| {
            std::iter::repeat_with(|| bucket.take(now_us)).take(5).filter(|got| *got).count()
        };
        assert_eq!(taken(0), 3);
        assert_eq!(taken(100_000), 1);
        assert_eq!(taken(300_000), 2);
        assert_eq!(taken(1_000_000_000), 3);
        assert_eq!(taken(0), 0, "a clock behind fills nothing");
        assert_eq!(taken(1_000_100_000), 1);
    }
}
