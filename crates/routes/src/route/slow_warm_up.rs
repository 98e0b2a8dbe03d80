//! `SlowWarmUpRoute`: a server that has lost its memory receives gets again gradually, by its hit
//! rate.
//!
//! While it is cold, it receives a share of `start + step * hit rate` of the gets; the failover
//! receives the rest. All other commands always go to it.

use std::sync::Arc;

use routeconf::ast::SlowWarmUpSettings;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::SendCell;
use upstream::{CommandClass, Request};

/// The number of gets for the hit rate. After this number, all earlier ones count half.
const SPAN: u32 = 10_000;

/// Gives a cold server a part of its gets, which grows with its hit rate.
#[derive(Debug)]
pub struct SlowWarmUpRoute {
    /// The route that warms up.
    pub target: RouteRef,
    /// The route that takes the other gets.
    pub failover: RouteRef,
    /// The pace, and the hit rates at which the warm-up starts and ends.
    pub settings: SlowWarmUpSettings,
    /// The current hit rate.
    pub rate: HitRate,
}

/// Recent hits and gets.
#[derive(Debug, Default)]
pub struct HitRate {
    hits: SendCell<u32>,
    gets: SendCell<u32>,
    is_cold: SendCell<bool>,
}

impl HitRate {
    fn note(&self, is_hit: bool) {
        self.gets.set(self.gets.get() + 1);
        self.hits.set(self.hits.get() + u32::from(is_hit));
        if self.gets.get() >= SPAN {
            self.gets.set(self.gets.get() >> 1);
            self.hits.set(self.hits.get() >> 1);
        }
    }

    fn rate(&self) -> f64 {
        f64::from(self.hits.get()) / f64::from(self.gets.get().max(1))
    }

    /// The share of gets that goes to the server.
    fn share(&self, settings: &SlowWarmUpSettings) -> f64 {
        let rate = self.rate();
        if self.gets.get() >= settings.min_requests {
            if rate < settings.enable_threshold {
                self.is_cold.set(true);
            } else if rate > settings.disable_threshold {
                self.is_cold.set(false);
            }
        }
        if self.is_cold.get() { (settings.start + settings.step * rate).min(1.0) } else { 1.0 }
    }
}

/// The resolution of random choices.
const CHANCES: usize = 1_000_000;

impl Route for SlowWarmUpRoute {
    fn name(&self) -> String {
        "slow-warmup".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if request.op.class() != CommandClass::Get {
            return self.target.route(cx, request);
        }
        let share = self.rate.share(&self.settings);
        if share < 1.0 && cx.random_below(CHANCES) as f64 >= share * CHANCES as f64 {
            return self.failover.route(cx, request);
        }
        Box::pin(async move {
            let reply = self.target.route(cx, request).await;
            if reply.outcome.is_hit() || reply.outcome.is_miss() {
                self.rate.note(reply.outcome.is_hit());
            }
            reply
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.target), Arc::clone(&self.failover)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_falls_while_cold_and_rises_with_the_hit_rate() {
        let (rate, settings) = (HitRate::default(), SlowWarmUpSettings::default());
        for _ in 0..99 {
            rate.note(false);
        }
        assert!((rate.share(&settings) - 1.0).abs() < 1e-9, "too few requests to judge");
        rate.note(false);
        assert!((rate.share(&settings) - 0.1).abs() < 1e-9);
        for _ in 0..100 {
            rate.note(true);
        }
        assert!((rate.share(&settings) - 0.6).abs() < 1e-9);
        for _ in 0..700 {
            rate.note(true);
        }
        assert!(rate.share(&settings) < 1.0, "between the thresholds it stays cold");
        for _ in 0..200 {
            rate.note(true);
        }
        assert!((rate.share(&settings) - 1.0).abs() < 1e-9);
    }
}
