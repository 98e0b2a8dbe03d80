//! Compares a position of MariaDB with the transactions that a server has had.

use std::collections::BTreeMap;

use changes::position::maria_domains;

/// The last transaction of each domain: its server and sequence number.
pub(super) type Domains = BTreeMap<u32, (u32, u64)>;

/// The transactions that a server of MariaDB has had.
#[derive(Debug)]
pub(super) struct History {
    /// The number of the server.
    pub(super) own: u32,
    /// The last transaction of each server in each domain of its log (`gtid_binlog_state`).
    pub(super) logged: Vec<(u32, (u32, u64))>,
    /// The last transactions that it replicated (`gtid_slave_pos`).
    pub(super) replicated: Domains,
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// The server has had all transactions of the position. From its own log, these domains were
    /// deleted.
    HasAll { deleted: Vec<u32> },
    /// It lacks one that it supposedly committed itself.
    LacksOwn,
    /// It lacks these of other servers.
    Lacks(String),
    /// It lacks this one of another server, and has had later ones of the same domain.
    Passed(String),
}

/// Parses `gtid_binlog_state`, which has a domain several times.
pub(super) fn logged(state: &str) -> Option<Vec<(u32, (u32, u64))>> {
    let states = state.split(',').map(maria_domains).collect::<Option<Vec<_>>>()?;
    Some(states.into_iter().flatten().collect())
}

impl History {
    /// Compares a position with it.
    pub(super) fn compare(&self, position: &Domains) -> Comparison {
        let lacking = |(domain, last): &(&u32, &(u32, u64))| !self.has_logged(**domain, **last);
        let is_in_log = |domain: u32| self.logged.iter().any(|(at, _)| *at == domain);
        let some_logged = !position.iter().all(|last| lacking(&last));
        let (mut deleted, mut others) = (Vec::new(), Vec::new());
        for (domain, (server, sequence)) in position.iter().filter(lacking) {
            // `FLUSH BINARY LOGS DELETE_DOMAIN_ID` forgets a domain without transactions in the
            // log. A reset would have removed every domain.
            let is_forgotten = some_logged && !is_in_log(*domain);
            if *server == self.own {
                if !is_forgotten {
                    return Comparison::LacksOwn;
                }
                deleted.push(*domain);
                continue;
            }
            let replicated = self.replicated.get(domain);
            // The server refuses to go on if it then finds other transactions in this domain.
            if is_forgotten && replicated.is_none() {
                continue;
            }
            let text = format!("{domain}-{server}-{sequence}");
            if replicated == Some(&(*server, *sequence)) {
                continue;
            }
            // A domain's transactions come in order.
            if self.last(*domain).is_some_and(|last| last >= *sequence) {
                return Comparison::Passed(text);
            }
            others.push(text);
        }
        match others.is_empty() {
            true => Comparison::HasAll { deleted },
            false => Comparison::Lacks(others.join(",")),
        }
    }

    /// The highest number of a domain that the server has had.
    fn last(&self, domain: u32) -> Option<u64> {
        let logged = self.logged.iter().filter(|(at, _)| *at == domain).map(|(_, last)| last);
        logged.chain(self.replicated.get(&domain)).map(|(_, sequence)| *sequence).max()
    }

    fn has_logged(&self, domain: u32, (server, sequence): (u32, u64)) -> bool {
        let is_after = |(at, (by, last)): &(u32, (u32, u64))| {
            *at == domain && *by == server && *last >= sequence
        };
        self.logged.iter().any(is_after)
    }
}

#[cfg(test)]
mod tests {
    use super::Comparison::{Lacks, LacksOwn, Passed};
    use super::*;

    /// Compares a position with the history of server 1.
    fn compared(state: &str, replicated: &str, position: &str) -> Comparison {
        let replicated = maria_domains(replicated).unwrap();
        let history = History { own: 1, logged: logged(state).unwrap(), replicated };
        history.compare(&maria_domains(position).unwrap())
    }

    const HAS_ALL: Comparison = Comparison::HasAll { deleted: Vec::new() };

    #[test]
    fn a_transaction_missing_from_its_own_servers_log_is_lost() {
        for state in ["0-1-3", "", "1-1-400,0-2-400,0-1-347"] {
            assert_eq!(compared(state, "", "0-1-348"), LacksOwn, "{state}");
        }
        for state in ["0-2-400,0-1-348", "0-1-349,\n0-2-5"] {
            assert_eq!(compared(state, "", "0-1-348"), HAS_ALL, "{state}");
        }
    }

    #[test]
    fn transactions_of_other_servers_are_compared() {
        let read = "0-2-47";
        assert_eq!(compared("0-2-48,0-1-400", "", read), HAS_ALL);
        // A replica that lags, or a new primary that has written less than was lost.
        for state in ["", "0-2-41", "0-2-41,0-1-46", "5-1-90,0-2-41"] {
            assert_eq!(compared(state, "0-2-41", read), Lacks(read.to_owned()), "{state}");
        }
        for state in ["0-2-41,0-1-47", "0-1-90"] {
            assert_eq!(compared(state, "0-2-41", read), Passed(read.to_owned()), "{state}");
        }
        assert_eq!(compared("", "", "0-2-47,5-3-1"), Lacks("0-2-47,5-3-1".to_owned()));
        assert_eq!(compared("", "", ""), HAS_ALL);
    }

    #[test]
    fn a_copy_has_had_transactions_that_its_log_lacks() {
        assert_eq!(compared("", "0-2-47", "0-2-47"), HAS_ALL);
        assert_eq!(compared("0-1-48", "0-2-47", "0-2-47"), HAS_ALL);
        assert_eq!(compared("", "0-2-48", "0-2-47"), Passed("0-2-47".to_owned()));
        // A copy that was promoted before it had the last transaction of a domain.
        let lacks = Lacks("5-2-2".to_owned());
        assert_eq!(compared("0-1-48", "5-2-1", "0-1-48,5-2-2"), lacks);
    }

    #[test]
    fn a_deleted_domain_is_not_lost() {
        let deleted = Comparison::HasAll { deleted: vec![5] };
        assert_eq!(compared("0-1-100020", "", "0-1-100017,5-1-1"), deleted);
        // Another server may still send these transactions.
        assert_eq!(compared("0-1-100020", "", "0-1-100017,5-2-1"), HAS_ALL);
        // A reset removes every domain.
        assert_eq!(compared("0-1-3", "", "0-1-100017,5-1-1"), LacksOwn);
        assert_eq!(compared("", "", "5-1-1"), LacksOwn);
    }
}
