//! mcrouter's `McBucketRoute`: stands before a pool whose keys are counted into buckets. It changes
//! no request; [`super::Route::bucket`] returns the number.

use routeconf::ast::Buckets;

use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Names the bucket of each key, and changes nothing.
#[derive(Debug)]
pub struct BucketizeRoute {
    /// The child.
    pub target: RouteRef,
    /// The counting of keys into buckets.
    pub buckets: Buckets,
}

impl Select for BucketizeRoute {
    fn name(&self) -> String {
        let Buckets { total, salt, keyspace, .. } = &self.buckets;
        format!("bucketize|total_buckets={total}|salt={salt}|bucketization_keyspace={keyspace}")
    }

    #[inline]
    fn select(&self, _cx: &Context, _request: &mut Request<'_>) -> &RouteRef {
        &self.target
    }

    fn bucket(&self, request: &Request<'_>) -> Option<(u32, &str)> {
        Some((self.buckets.of(request.routed_key()), &self.buckets.keyspace))
    }
}
