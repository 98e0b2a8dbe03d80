//! `holdall config show`: every setting, its value, and the origin of the value.

use options::Options;
use options::settings::{self, Given, Kind, Origin, settings};
use serde_json::{Value, json};

/// A setting as a server would have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub key: String,
    /// Its value; as text if it is a default that depends on more.
    pub value: String,
    /// The origin of the value.
    pub origin: Origin,
    /// The flag that sets it.
    pub flag: String,
    /// True if a running server takes a new value on SIGHUP.
    pub is_live: bool,
}

/// Every setting, in the order of the help.
#[must_use]
pub fn shown(options: &Options, given: &[Given]) -> Vec<Shown> {
    let one = |setting: settings::Setting| {
        let given = given.iter().find(|given| given.key == setting.key);
        let value = match given {
            Some(given) => settings::shown(&given.key, &given.values, ","),
            None => default_of(&setting.key, setting.kind, setting.default, options),
        };
        let origin = given.map_or(Origin::Default, |given| given.origin.clone());
        Shown {
            key: setting.key,
            value,
            origin,
            flag: setting.flag,
            is_live: setting.live.is_some(),
        }
    };
    settings().into_iter().map(one).collect()
}

/// The default; resolved if it depends on other settings or on the machine.
fn default_of(key: &str, kind: Kind, default: &str, options: &Options) -> String {
    match key {
        "threads" => options.threads.to_string(),
        "stripes" => options.stripes.to_string(),
        "max_item_size" => options.item_bytes_max.to_string(),
        "protocol" => format!("{:?}", options.protocol).to_lowercase(),
        _ if kind == Kind::Count => "0".to_owned(),
        _ if kind == Kind::Switch => match default {
            "on" => "true".to_owned(),
            _ => "false".to_owned(),
        },
        _ => default.to_owned(),
    }
}

/// The settings in columns.
#[must_use]
pub(crate) fn table(shown: &[Shown]) -> String {
    let width = |text: fn(&Shown) -> &str| {
        shown.iter().map(|setting| text(setting).len()).max().unwrap_or_default().min(40)
    };
    let (keys, values) = (width(|setting| &setting.key), width(|setting| &setting.value));
    let line = |setting: &Shown| {
        let value = if setting.value.is_empty() { "-" } else { &setting.value };
        format!("{:keys$}  {value:values$}  {}\n", setting.key, setting.origin)
    };
    shown.iter().map(line).collect()
}

/// The settings for programs.
#[must_use]
pub(crate) fn to_json(shown: &[Shown]) -> Value {
    let one = |setting: &Shown| {
        json!({
            "name": setting.key,
            "value": setting.value,
            "origin": setting.origin.to_string(),
            "flag": setting.flag,
            "changes_on": if setting.is_live { "reload" } else { "--takeover" },
        })
    };
    shown.iter().map(one).collect()
}
