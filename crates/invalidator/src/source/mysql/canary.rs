//! Writes the canary's row to MariaDB or MySQL.

use changes::canary_rule::CanaryRule;

use super::Settings;
use super::server::Server;
use crate::change_source::{CanaryWriter, SourceError};

/// A session at the server that accepts writes.
#[derive(Debug)]
pub struct MysqlCanary {
    settings: Settings,
    rule: CanaryRule,
    /// True when keys are read from comments, which only a log of statements contains.
    has_comments: bool,
    server: Option<Server>,
}

impl MysqlCanary {
    /// A writer of the row of `rule`, at the first server of `settings`.
    #[must_use]
    pub const fn new(settings: Settings, rule: CanaryRule, has_comments: bool) -> Self {
        Self { settings, rule, has_comments, server: None }
    }

    fn statement(&self, beat: u64) -> String {
        let table = self.rule.table.as_deref().unwrap_or_default();
        let table = table.split('.').map(|part| format!("`{}`", part.replace('`', "``")));
        let table = table.collect::<Vec<_>>().join(".");
        let name = &self.rule.name;
        let row = format!("REPLACE INTO {table} (name, beat) VALUES ('{name}', {beat})");
        if !self.has_comments {
            return row;
        }
        let keys = self.rule.keys(beat).map(|key| String::from_utf8_lossy(&key).into_owned());
        format!("{row} /* mc:del {} */", keys.collect::<Vec<_>>().join(" "))
    }
}

impl CanaryWriter for MysqlCanary {
    async fn write(&mut self, beat: u64) -> Result<(), SourceError> {
        // A session with an unfinished answer is dropped.
        let mut server = match self.server.take() {
            Some(server) => server,
            None => {
                let name = self.settings.servers.first().map(String::as_str).unwrap_or_default();
                let mut server = Server::connect(&self.settings, name).await?;
                server.set("SET SESSION autocommit = 1").await?;
                server
            }
        };
        server.set(&self.statement(beat)).await?;
        self.server = Some(server);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_a_row_with_an_optional_comment() {
        let settings = Settings::for_tests();
        let rule = CanaryRule {
            table: Some("a`b.c".to_owned()),
            name: "n".to_owned(),
            prefixes: vec!["p:".to_owned()],
            keys: 2,
        };
        let statement = |has_comments| {
            MysqlCanary::new(settings.clone(), rule.clone(), has_comments).statement(7)
        };
        let row = "REPLACE INTO `a``b`.`c` (name, beat) VALUES ('n', 7)";
        assert_eq!(statement(false), row);
        assert_eq!(statement(true), format!("{row} /* mc:del p:n:0|#|7 p:n:1|#|7 */"));
    }
}
