//! `OperationSelectorRoute` and `RoutingGroupRoute`: choose by the command, or by its class.

use super::{RouteRef, Select};
use crate::context::Context;
use proto::meta::Options;
use proto::text::Words;
use routeconf::select::policy;
use upstream::{Command, CommandClass, Request};

/// Chooses by the command. A meta command counts as the equivalent classic one.
#[derive(Debug)]
pub struct OperationSelectorRoute {
    /// Routes by command, none of them a meta command.
    pub policies: Vec<(Command, RouteRef)>,
    /// The route for the others.
    pub default: RouteRef,
}

impl Select for OperationSelectorRoute {
    fn name(&self) -> String {
        "operation-selector".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        policy(&self.policies, &classic(request)).unwrap_or(&self.default)
    }
}

/// Chooses by the class of the command.
#[derive(Debug)]
pub struct RoutingGroupRoute {
    /// By class.
    pub policies: Vec<(CommandClass, RouteRef)>,
    /// The route for the others.
    pub default: RouteRef,
}

impl Select for RoutingGroupRoute {
    fn name(&self) -> String {
        "routing-group".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        policy(&self.policies, &request.op.class()).unwrap_or(&self.default)
    }
}

/// The classic command equivalent to the request. A packet of the binary protocol also arrives as
/// a meta command. Its get is `get`, although it returns the cas unique.
fn classic(request: &Request<'_>) -> Command {
    match as_line(request) {
        Command::Gets if request.is_packet => Command::Get,
        Command::Gats if request.is_packet => Command::Gat,
        command => command,
    }
}

/// The same, if it came as a line of text.
fn as_line(request: &Request<'_>) -> Command {
    let classic = request.op.classic();
    if !request.op.is_meta() {
        return classic;
    }
    let Ok((options, mode)) = Options::parse(Words::new(request.words)) else { return classic };
    let mode = mode.and_then(|mode| mode.first());
    let is_tied = options.lease.is_some();
    match request.op {
        Command::MetaArithmetic if matches!(mode, Some(b'D' | b'-')) => Command::Decr,
        Command::MetaGet if is_tied => Command::LeaseGet,
        Command::MetaGet => match (options.exptime.is_some(), options.value, options.wants_cas) {
            (true, false, _) => Command::Touch,
            (true, true, true) => Command::Gats,
            (true, true, false) => Command::Gat,
            (false, _, true) => Command::Gets,
            (false, _, false) => Command::Get,
        },
        Command::MetaSet if is_tied => Command::LeaseSet,
        Command::MetaSet => match mode {
            Some(b'A') => Command::Append,
            Some(b'P') => Command::Prepend,
            _ if options.compare_cas.is_some() => Command::Cas,
            Some(b'E') => Command::Add,
            Some(b'R') => Command::Replace,
            _ => Command::Set,
        },
        _ => classic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_commands_map_to_classic_commands_by_their_flags() {
        let of = |op, words: &str| {
            classic(&Request { words: words.as_bytes(), ..Request::new(op, b"k") }).name()
        };
        let rows = [
            (Command::MetaSet, "", "set"),
            (Command::MetaSet, "c F1 T9 MS", "set"),
            (Command::MetaSet, "c F1 T9 ME", "add"),
            (Command::MetaSet, "c F1 T9 MR", "replace"),
            (Command::MetaSet, "c MA", "append"),
            (Command::MetaSet, "c MP C5", "prepend"),
            (Command::MetaSet, "c F1 T9 MS C5", "cas"),
            (Command::MetaSet, "G7", "lease-set"),
            (Command::MetaArithmetic, "v c D1 MI N0 J0", "incr"),
            (Command::MetaArithmetic, "v c D1 M+", "incr"),
            (Command::MetaArithmetic, "v c D1 MD", "decr"),
            (Command::MetaArithmetic, "M-", "decr"),
            (Command::MetaGet, "v f", "get"),
            (Command::MetaGet, "v f c b", "gets"),
            (Command::MetaGet, "v T9", "gat"),
            (Command::MetaGet, "v f c T9 b", "gats"),
            (Command::MetaGet, "f c T9 b", "touch"),
            (Command::MetaGet, "v G", "lease-get"),
            (Command::MetaDelete, "C5", "delete"),
            (Command::MetaDebug, "", "metaget"),
            // The server refuses it.
            (Command::MetaSet, "C", "set"),
            (Command::Add, "", "add"),
        ];
        for (op, words, name) in rows {
            assert_eq!(of(op, words), name, "{op:?} {words}");
        }
        let rows = [
            (Command::Gets, "", "get"),
            (Command::Gats, "", "gat"),
            (Command::MetaGet, "v f c b", "get"),
            (Command::MetaGet, "v f c T9 b", "gat"),
            (Command::MetaGet, "f c T9 b", "touch"),
            (Command::MetaSet, "c F1 T9 MS C5", "cas"),
        ];
        for (op, words, name) in rows {
            let packet = Request { is_packet: true, ..Request::new(op, b"k") };
            let of = classic(&Request { words: words.as_bytes(), ..packet });
            assert_eq!(of.name(), name, "{op:?} {words}");
        }
    }
}
