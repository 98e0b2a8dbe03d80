//! `holdall explain --json`.

use serde_json::{Value, json};

use super::sample::{SAMPLE, sample, server_of};
use crate::ast::{Config, Listener};
use crate::interval::exact_interval;
use crate::walk::{Question, Step, Walker};

/// The path of the key from each listener, and with another configuration the share of keys that
/// move.
pub(super) fn explained(old: &Config, new: Option<&Config>, question: &Question<'_>) -> Value {
    let walker = Walker::new(old);
    let listeners = old.listeners.iter().map(|listener| {
        let steps = walker.walk(listener, question);
        let other = new.map(|new| {
            let other = new.listeners.iter().find(|other| other.name == listener.name);
            other.map(|other| difference((old, listener), (new, other), question))
        });
        json!({
            "name": listener.name,
            "listen": listener.listen.as_ref().map(|listen| &listen.address),
            "server": server_of(&walker, listener, question),
            "steps": steps.iter().map(|step| branch(old, &walker, step)).collect::<Vec<_>>(),
            "difference": other,
        })
    });
    json!({
        "key": question.key.escape_ascii().to_string(),
        "command": question.operation.name(),
        "listeners": listeners.collect::<Vec<_>>(),
        "is_cut": walker.was_cut(),
    })
}

/// A route with those below it.
fn branch(config: &Config, walker: &Walker<'_>, step: &Step) -> Value {
    let handle = config.handle(step.route);
    json!({
        "route": handle.route.name(),
        "name": handle.name,
        "when": super::draw::when(step.when).trim_end_matches(": "),
        "note": step.note,
        "key": step.key.escape_ascii().to_string(),
        "server": step.server.map(|server| walker.member_name(server)),
        "place": config.files.place(handle.at),
        "next": step.next.iter().map(|next| branch(config, walker, next)).collect::<Vec<_>>(),
    })
}

fn difference(
    old: (&Config, &Listener),
    new: (&Config, &Listener),
    question: &Question<'_>,
) -> Value {
    let moves = sample(old, new, question);
    let moved = moves.iter().filter(|((from, to), _)| from != to);
    let count = moved.clone().map(|(_, count)| count).sum();
    let (least, most) = exact_interval(count, SAMPLE);
    let moves = moved.map(|((from, to), count)| json!({ "from": from, "to": to, "keys": count }));
    json!({
        "keys": SAMPLE,
        "moved": count,
        "share_least": least,
        "share_most": most,
        "moves": moves.collect::<Vec<_>>(),
    })
}
