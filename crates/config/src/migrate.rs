//! `holdall migrate`: the settings of a running memcached as a TOML file of ours, and what could
//! not be taken over.
//!
//! Source: `process_stat_settings` of memcached 1.6, whose names and words are read here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A file of settings, and notes for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// The TOML text.
    pub text: String,
    /// A sentence for each setting that was not taken over, or should be looked at.
    pub notes: Vec<String>,
}

/// Settings that a server shows, made into a file for `holdall serve --config`.
#[must_use]
pub fn migrated(present: &BTreeMap<String, String>) -> Migrated {
    let mut made = Migrated::default();
    made.network(present);
    made.memory(present);
    made.numbers(present);
    made.switches(present);
    made.logins(present);
    made.leave_out(present);
    made
}

impl Migrated {
    fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing into a string does not fail.
        let _ = writeln!(self.text, "{key} = {value}");
    }

    fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, quoted(text));
    }

    fn network(&mut self, present: &BTreeMap<String, String>) {
        let of = |name: &str| present.get(name).map(String::as_str);
        if let Some(path) = of("domain_socket").filter(|path| *path != "NULL") {
            self.set_text("unix_socket", path);
            if let Some(mask) = of("umask") {
                self.set_text("unix_mask", &format!("0{mask}"));
            }
        } else {
            // Without -l memcached listens everywhere, and holdall on this machine alone.
            let hosts = of("inter").filter(|hosts| *hosts != "NULL").unwrap_or("*");
            let hosts: Vec<_> = hosts.split([',', ';']).map(quoted).collect();
            self.set("listen", format!("[{}]", hosts.join(", ")));
        }
        let protocol = of("binding_protocol").filter(|name| *name != "auto-negotiate");
        if let Some(protocol) = protocol {
            self.set_text("protocol", protocol);
        }
    }

    fn memory(&mut self, present: &BTreeMap<String, String>) {
        if let Some(bytes) = number(present, "maxbytes") {
            match bytes % (1 << 20) {
                0 => self.set("memory_limit", bytes >> 20),
                _ => self.set_text("memory_limit", &format!("{}k", bytes >> 10)),
            }
        }
        if let Some(bytes) = number(present, "item_size_max") {
            self.set("max_item_size", bytes);
        }
        if present.get("evictions").is_some_and(|word| word == "off") {
            self.set("disable_evictions", true);
        }
        if let Some(bytes) = number(present, "watcher_logbuf_size") {
            self.set("watcher_logbuf_size", bytes >> 10);
        }
        // Without temporary_ttl it shows a default that is not used.
        if is_yes(present, "temp_lru")
            && let Some(secs) = number(present, "temporary_ttl")
        {
            self.set("temporary_ttl", secs);
        }
    }

    fn numbers(&mut self, present: &BTreeMap<String, String>) {
        for (statistic, key) in NUMBERS {
            if let Some(number) = number(present, statistic) {
                self.set(key, number);
            }
        }
        let ratio = present.get("slab_automove_ratio");
        if let Some(ratio) = ratio.and_then(|text| text.parse::<f64>().ok()) {
            self.set("slab_automove_ratio", format!("{ratio:?}"));
        }
    }

    fn switches(&mut self, present: &BTreeMap<String, String>) {
        for (statistic, key, if_so) in SWITCHES {
            match present.get(*statistic).map(String::as_str) {
                Some("yes") => self.set(key, if_so),
                Some("no") => self.set(key, !if_so),
                _ => {}
            }
        }
        if is_yes(present, "detail_enabled")
            && let Some(delimiter) = present.get("stat_key_prefix")
        {
            self.set_text("prefix_delimiter", delimiter);
        }
    }

    fn logins(&mut self, present: &BTreeMap<String, String>) {
        let path = |name: &str| present.get(name).filter(|path| !NONE.contains(&path.as_str()));
        if let Some(path) = path("auth_enabled_ascii") {
            self.set_text("auth_file", path);
        }
        if is_yes(present, "auth_enabled_sasl") {
            self.set("enable_sasl", true);
            self.notes.push(
                "enable_sasl: SASL's database is not read; name a file of users by auth_file, whose lines holdall \
                 passwd makes"
                    .to_owned(),
            );
        }
        if !is_yes(present, "ssl_enabled") {
            return;
        }
        self.set("enable_ssl", true);
        for key in ["ssl_chain_cert", "ssl_key", "ssl_ca_cert", "ssl_ciphers"] {
            if let Some(path) = path(key) {
                self.set_text(key, path);
            }
        }
        if let Some(mode) = number(present, "ssl_verify_mode") {
            self.set("ssl_verify_mode", mode.min(3));
        }
        if present.get("ssl_min_version").is_some_and(|version| version == "tlsv1.3") {
            self.set("ssl_min_version", 3);
        }
        if is_yes(present, "ssl_session_cache") {
            self.set("ssl_session_cache", true);
        }
    }

    fn leave_out(&mut self, present: &BTreeMap<String, String>) {
        let shown = |name: &str| present.get(name).map(String::as_str);
        if let Some(path) = shown("memory_file").filter(|path| !NONE.contains(path)) {
            self.notes.push(format!(
                "memory_file {path} is in memcached's format, and left out: name a new file, and the items will \
                 outlive restarts from then on"
            ));
        }
        if shown("ext_path").is_some_and(|path| !NONE.contains(&path)) {
            self.notes.push("ext_path: there is no external storage".to_owned());
        }
        if is_yes(present, "proxy_enabled") {
            self.notes.push(
                "proxy_enabled: this server is a proxy; its routes are those of holdall route"
                    .to_owned(),
            );
        }
        for (statistic, default, why) in LEFT_OUT {
            if let Some(value) = shown(statistic).filter(|value| value != default) {
                self.notes.push(format!("{statistic} {value} is left out: {why}"));
            }
        }
    }
}

fn number(present: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    present.get(name)?.parse().ok()
}

fn is_yes(present: &BTreeMap<String, String>, name: &str) -> bool {
    present.get(name).is_some_and(|word| word == "yes")
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

/// memcached's words for no file.
const NONE: [&str; 4] = ["no", "NULL", "(null)", ""];

/// Numbers that both understand alike, each with its setting.
const NUMBERS: &[(&str, &str)] = &[
    ("tcpport", "port"),
    ("udpport", "udp_port"),
    ("maxconns", "conn_limit"),
    ("num_threads", "threads"),
    ("tcp_backlog", "listen_backlog"),
    ("reqs_per_event", "max_reqs_per_event"),
    ("idle_timeout", "idle_timeout"),
    ("slab_automove", "slab_automove"),
    ("lru_crawler_sleep", "lru_crawler_sleep"),
    ("lru_crawler_tocrawl", "lru_crawler_tocrawl"),
    ("verbosity", "verbose"),
];

/// Yes or no, each with its setting and the setting's value for yes.
const SWITCHES: &[(&str, &str, bool)] = &[
    ("cas_enabled", "disable_cas", false),
    ("flush_enabled", "disable_flush_all", false),
    ("dump_enabled", "disable_dumping", false),
    ("shutdown_command", "enable_shutdown", true),
    ("maxconns_fast", "maxconns_fast", true),
    ("slab_reassign", "slab_reassign", true),
    ("lru_crawler", "lru_crawler", true),
];

/// Settings without a counterpart, each with memcached's default and the reason.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("growth_factor", "1.25", "chunks of holdall are closer together by default"),
    ("chunk_size", "48", "chunks of holdall begin smaller by default"),
    ("hashpower_init", "0", "the hash table grows by itself, without a pause"),
    ("slab_chunk_max", "524288", "large values are kept in pieces of a fixed size"),
    ("tail_repair_time", "0", "no item can be stuck at the tail"),
    ("hot_lru_pct", "20", "recency is kept in bags, not in hot and warm lists"),
    ("warm_lru_pct", "40", "recency is kept in bags, not in hot and warm lists"),
    ("read_buf_mem_limit", "0", "connection buffers count towards memory_limit"),
    ("lru_maintainer_thread", "yes", "the cleaner thread always runs"),
];
