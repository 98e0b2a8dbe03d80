//! `OperationSelectorRoute` and `RoutingGroupRoute`: choose by the command, or by its class.

use super::{RouteRef, Select};
use crate::context::Context;
use upstream::{Command, CommandClass, Request};

/// Chooses by the command. Meta commands count as their classic ones ([`Command::classic`]).
#[derive(Debug)]
pub struct OperationSelectorRoute {
    /// Routes by command, none of them a meta command.
    pub policies: Vec<(Command, RouteRef)>,
    /// For the others.
    pub default: RouteRef,
}

impl Select for OperationSelectorRoute {
    fn name(&self) -> String {
        "operation-selector".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let command = request.op.classic();
        let found = self.policies.iter().find(|(policy, _)| *policy == command);
        found.map_or(&self.default, |(_, route)| route)
    }
}

/// Chooses by the class of the command.
#[derive(Debug)]
pub struct RoutingGroupRoute {
    /// By class.
    pub policies: Vec<(CommandClass, RouteRef)>,
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
