//! The JSON Schema of the server's TOML file, for editors, generated from the table of settings.

use options::settings::{Kind, Setting, settings};
use serde_json::{Map, Value, json};

/// The schema, of draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    let properties: Map<String, Value> =
        settings().iter().map(|setting| (setting.key.clone(), property(setting))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of holdall serve",
        "description": "The file of holdall serve --config FILE.toml",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn property(setting: &Setting) -> Value {
    let mut property = match setting.kind {
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Count => json!({ "type": "integer", "minimum": 0, "maximum": 3 }),
        Kind::Number => json!({ "type": "integer" }),
        Kind::Fraction => json!({ "type": "number" }),
        Kind::Size => json!({
            "oneOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "string", "pattern": "^[0-9]+[kKmMgG]?$" },
            ],
        }),
        Kind::Text => json!({ "type": "string" }),
        Kind::List => json!({
            "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
        }),
    };
    let change = if setting.live.is_some() { "reload" } else { "--takeover or a restart" };
    let default = match setting.default {
        "" => String::new(),
        default => format!(" Default: {default}."),
    };
    let help = setting.help;
    property["description"] =
        format!("{help} ({}).{default} Changes on {change}.", setting.flag).into();
    property
}
