//! `BlackholeRoute`: sends matching requests elsewhere, or nowhere.

use std::sync::Arc;

use routeconf::ast::{Condition, RequestField};

use super::{RouteRef, Select};
use crate::context::Context;
use proto::meta::Options;
use proto::text::Words;
use upstream::{Command, Request};

/// Returns true if a request's field has this value.
fn is(field: RequestField, request: &Request<'_>, value: &str) -> bool {
    let numbers = match field {
        RequestField::Exptime | RequestField::Flags | RequestField::Number => Numbers::of(request),
        RequestField::Key | RequestField::Value => Numbers::default(),
    };
    match field {
        RequestField::Number => value.parse() == Ok(numbers.number),
        RequestField::Exptime => value.parse() == Ok(numbers.exptime),
        RequestField::Flags => value.parse() == Ok(numbers.flags),
        RequestField::Key => request.key == value.as_bytes(),
        RequestField::Value => request.value == value.as_bytes(),
    }
}

/// The numbers of a request, which meta commands carry in their words.
#[derive(Debug, Default)]
struct Numbers {
    /// The cas unique, the token, or the amount to count by.
    number: u64,
    exptime: i64,
    flags: u32,
}

impl Numbers {
    fn of(request: &Request<'_>) -> Self {
        if !request.op.is_meta() {
            let Request { number, exptime, flags, .. } = *request;
            return Self { number, exptime, flags };
        }
        // The server refuses unreadable words.
        let Ok((options, _)) = Options::parse(Words::new(request.words)) else {
            return Self::default();
        };
        let number = match request.op {
            Command::MetaArithmetic => options.delta.unwrap_or(1),
            _ => options.lease.or(options.compare_cas).unwrap_or(0),
        };
        let (exptime, flags) = (options.exptime, options.client_flags);
        Self { number, exptime: exptime.unwrap_or(0), flags: flags.unwrap_or(0) }
    }
}

/// Sends requests that match to another child, or nowhere.
#[derive(Debug)]
pub struct BlackholeRoute {
    /// The conditions, all of which must hold.
    pub tests: Vec<Condition>,
    /// The child for other requests.
    pub default: RouteRef,
    /// The child for matching requests.
    pub child: RouteRef,
}

impl Select for BlackholeRoute {
    fn name(&self) -> String {
        "blackhole".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let holds = |test: &Condition| is(test.field, request, &test.value) == test.equals;
        let falls = !self.tests.is_empty() && self.tests.iter().all(holds);
        if falls { &self.child } else { &self.default }
    }
}

impl BlackholeRoute {
    /// Without a child, matching requests are answered as misses.
    #[must_use]
    pub fn new(tests: Vec<Condition>, default: RouteRef, child: Option<RouteRef>) -> Self {
        let child = child.unwrap_or_else(|| Arc::new(super::NullRoute));
        Self { tests, default, child }
    }
}
