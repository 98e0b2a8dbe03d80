//! `BlackholeRoute`: requests that look a certain way go elsewhere, or nowhere.

use std::sync::Arc;

use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// The field of a request that is looked at; mcrouter's names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Field {
    /// `casToken`, `leaseToken`, `delta`
    Number,
    /// `exptime`
    Exptime,
    /// `flags`
    Flags,
    /// `key`
    Key,
    /// `value`
    Value,
}

impl Field {
    /// The field of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "casToken" | "leaseToken" | "delta" => Some(Self::Number),
            "exptime" => Some(Self::Exptime),
            "flags" => Some(Self::Flags),
            "key" => Some(Self::Key),
            "value" => Some(Self::Value),
            _ => None,
        }
    }

    fn is(self, request: &Request<'_>, value: &str) -> bool {
        match self {
            Self::Number => value.parse() == Ok(request.number),
            Self::Exptime => value.parse() == Ok(request.exptime),
            Self::Flags => value.parse() == Ok(request.flags),
            Self::Key => request.key == value.as_bytes(),
            Self::Value => request.value == value.as_bytes(),
        }
    }
}

/// One test: the field, whether it must be equal, and to what.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Test {
    /// The field.
    pub field: Field,
    /// Equal, or not equal.
    pub equals: bool,
    /// To this.
    pub value: String,
}

/// Sends requests that match to another child, or nowhere.
#[derive(Debug)]
pub struct BlackholeRoute {
    /// All must hold.
    pub tests: Vec<Test>,
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
        let holds = |test: &Test| test.field.is(request, &test.value) == test.equals;
        let falls = !self.tests.is_empty() && self.tests.iter().all(holds);
        if falls { &self.child } else { &self.default }
    }
}

impl BlackholeRoute {
    /// Without a child, what falls is answered as a miss.
    #[must_use]
    pub fn new(tests: Vec<Test>, default: RouteRef, child: Option<RouteRef>) -> Self {
        let child = child.unwrap_or_else(|| Arc::new(super::NullRoute));
        Self { tests, default, child }
    }
}
