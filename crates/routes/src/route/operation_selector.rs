//! `OperationSelectorRoute` and `RoutingGroupRoute`: by the command, or its class.

use routeconf::ast::Operation;

use super::{RouteRef, Select};
use crate::context::Context;
use upstream::{Class, Request};

/// Chooses by the command. Meta commands count as the classic ones that they are like.
#[derive(Debug)]
pub struct OperationSelectorRoute {
    /// By command.
    pub policies: Vec<(Operation, RouteRef)>,
    /// For the others.
    pub default: RouteRef,
}

impl Select for OperationSelectorRoute {
    fn name(&self) -> String {
        "operation-selector".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let operation = request.op.operation();
        let found = self.policies.iter().find(|(policy, _)| Some(*policy) == operation);
        found.map_or(&self.default, |(_, route)| route)
    }
}

/// Chooses by the class of the command.
#[derive(Debug)]
pub struct RoutingGroupRoute {
    /// By class.
    pub policies: Vec<(Class, RouteRef)>,
    /// For the others.
    pub default: RouteRef,
}

impl Select for RoutingGroupRoute {
    fn name(&self) -> String {
        "routing-group".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let class = request.op.class();
        let found = self.policies.iter().find(|(policy, _)| *policy == class);
        found.map_or(&self.default, |(_, route)| route)
    }
}
