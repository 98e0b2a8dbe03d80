//! Routes that choose by command, by class of command, or by prefix.

use super::fields::Fields;
use super::{Builder, owned};
use crate::ast::{Command, CommandClass, Condition, RequestField, Route};
use crate::json::Value;
use crate::source::{Diagnostic, Fallible, fail};

const CLASSES: [(&str, CommandClass); 4] = [
    ("arithmetic_like", CommandClass::Arithmetic),
    ("delete_like", CommandClass::Delete),
    ("get_like", CommandClass::Get),
    ("update_like", CommandClass::Update),
];

impl Builder<'_> {
    /// `OperationSelectorRoute`, `PrefixPolicyRoute`.
    pub(super) fn operation_selector(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        let default = self.maybe_route(fields, "default_policy")?;
        let mut policies = Vec::new();
        for (name, node) in
            fields.object("operation_policies")?.into_iter().flat_map(|map| map.members())
        {
            let Some(operation) = Command::by_name(name) else {
                let error = Diagnostic::error(node.at, format!("there is no command '{name}'"));
                let known = Command::named().map(Command::name);
                return Err(Box::new(error.meant(name, known)));
            };
            policies.push((operation, self.route(node)?));
        }
        if default.is_none() && policies.is_empty() {
            return fail(
                fields.at,
                "the route has no 'default_policy' and no 'operation_policies'",
            );
        }
        Ok(Route::OperationSelector { default, policies })
    }

    /// `RoutingGroupRoute`.
    pub(super) fn routing_group(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        let default = self.maybe_route(fields, "default_policy")?;
        let mut policies = Vec::new();
        let groups = fields.object("routing_group_policies")?;
        for (name, node) in groups.into_iter().flat_map(|map| map.members()) {
            let Some((_, class)) = CLASSES.into_iter().find(|(known, _)| *known == &**name) else {
                let known = CLASSES.map(|(name, _)| name).join(", ");
                let error =
                    Diagnostic::error(node.at, format!("there is no class of commands '{name}'"));
                return Err(Box::new(error.hint(format!("known are {known}"))));
            };
            policies.push((class, self.route(node)?));
        }
        Ok(Route::RoutingGroup { default, policies })
    }

    /// `PrefixSelectorRoute`.
    pub(super) fn prefix_selector(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        let wildcard = self.maybe_route(fields, "wildcard")?;
        let mut policies = Vec::new();
        for (prefix, node) in fields.object("policies")?.into_iter().flat_map(|map| map.members()) {
            policies.push((owned(prefix), self.route(node)?));
        }
        policies.sort_by(|(a, _), (b, _)| a.cmp(b));
        if wildcard.is_none() && policies.is_empty() {
            return fail(fields.at, "the route has no 'policies' and no 'wildcard'");
        }
        Ok(Route::PrefixSelector { policies, wildcard })
    }

    /// `BlackholeRoute`.
    pub(super) fn blackhole(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        let default = self.need_route(fields, "default")?;
        let child = self.maybe_route(fields, "blackhole_child")?;
        fields.need("policies")?;
        let mut policies = Vec::new();
        for (name, node) in fields.object("policies")?.into_iter().flat_map(|map| map.members()) {
            let Some(field) = RequestField::named(name) else {
                return fail(node.at, format!("no request has a field '{name}'"));
            };
            let Some(items) = node.as_array() else {
                return fail(
                    node.at,
                    format!("the policies of '{name}' are a list, not {}", node.value.kind()),
                );
            };
            for item in items {
                let condition = Fields::new(item, "a policy")?;
                let equals = match condition.need_text("op")? {
                    "equals" => true,
                    "not_equals" => false,
                    other => {
                        return fail(
                            condition.place("op"),
                            format!("'{other}' is not 'equals' or 'not_equals'"),
                        );
                    }
                };
                let value = match &condition.need("value")?.value {
                    Value::String(text) => text.to_string(),
                    Value::Int(number) => number.to_string(),
                    other => {
                        return fail(
                            condition.place("value"),
                            format!("a value is a string or an integer, not {}", other.kind()),
                        );
                    }
                };
                policies.push(Condition { field, equals, value });
                condition.finish(&mut self.findings);
            }
        }
        Ok(Route::Blackhole { policies, default, child })
    }
}
