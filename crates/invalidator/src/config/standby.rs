//! The table `[standby]` of the configuration.

use serde::Deserialize;

use super::Fault;
use crate::standby::Group;

/// The table as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Standby {
    group: String,
    #[serde(default)]
    peers: Vec<String>,
}

/// The longest name in bytes: MySQL limits names of locks to 64.
const NAME_BYTES_MAX: usize = 48;

impl Standby {
    pub(super) fn values(&self) -> Result<(), Fault> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let is_name = (1..=NAME_BYTES_MAX).contains(&self.group.len());
        if !is_name || !self.group.chars().all(is_plain) {
            return Err(Fault::GroupName(self.group.clone()));
        }
        let is_address = |address: &&String| {
            let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            !matches!(port, Some(Ok(1..)))
        };
        match self.peers.iter().find(is_address) {
            Some(address) => Err(Fault::Peer(address.clone())),
            None => Ok(()),
        }
    }

    pub(super) fn group(&self) -> Group {
        Group { name: self.group.clone(), peers: self.peers.clone() }
    }
}
