//! `BlackholeRoute`: requests that look a certain way go elsewhere, or nowhere.

use std::sync::Arc;

use routeconf::ast::{Condition, RequestField};

use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Whether a request's field is this.
fn is(field: RequestField, request: &Request<'_>, value: &str) -> bool {
    match field {
        RequestField::Number => value.parse() == Ok(request.number),
        RequestField::Exptime => value.parse() == Ok(request.exptime),
        RequestField::Flags => value.parse() == Ok(request.flags),
        RequestField::Key => request.key == value.as_bytes(),
        RequestField::Value => request.value == value.as_bytes(),
    }
}

/// Sends requests that match to another child, or nowhere.
#[derive(Debug)]
pub struct BlackholeRoute {
    /// All must hold.
    pub tests: Vec<Condition>,
    /// The child for the others.
    pub default: RouteRef,
    /// The child for those for which all hold.
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
    /// Without a child, what falls is answered as a miss.
    #[must_use]
    pub fn new(tests: Vec<Condition>, default: RouteRef, child: Option<RouteRef>) -> Self {
        let child = child.unwrap_or_else(|| Arc::new(super::NullRoute));
        Self { tests, default, child }
    }
}
