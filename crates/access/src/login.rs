//! The state of a connection's login.

use std::sync::Arc;

use scram::Hash;

use crate::rights::Permission;
use crate::users::User;

/// The server's side of a login by SCRAM.
pub type Exchange = scram::Server<(Arc<User>, u64)>;

/// The state of a connection's login.
#[derive(Debug, Default)]
pub enum Login {
    /// No user yet.
    #[default]
    None,
    /// A client in the middle of SCRAM.
    InProgress(Box<Exchange>),
    /// This user.
    Ok(Arc<User>),
}

/// The SASL mechanisms, the strongest first: clients take the first that they support.
pub const MECHANISMS: &[u8] = b"SCRAM-SHA-256 SCRAM-SHA-1 PLAIN";

/// A SASL mechanism.
pub(crate) enum Mechanism {
    Plain,
    Scram(Box<Exchange>),
}

impl Mechanism {
    /// The mechanism of this name.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"PLAIN" => Some(Self::Plain),
            b"SCRAM-SHA-1" => Self::scram(Hash::Sha1),
            b"SCRAM-SHA-256" => Self::scram(Hash::Sha256),
            _ => None,
        }
    }

    /// `None` when the system gives no random numbers.
    fn scram(hash: Hash) -> Option<Self> {
        Some(Self::Scram(Box::new(Exchange::new(hash).ok()?)))
    }
}

impl Login {
    /// True if no user is logged in.
    #[inline]
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        !matches!(self, Self::Ok(_))
    }

    /// True if the user may not do this with `key`.
    #[inline]
    #[must_use]
    pub fn forbids(&self, permission: Permission, key: &[u8]) -> bool {
        match self {
            Self::Ok(user) => {
                user.rights.as_ref().is_some_and(|rights| !rights.allow(permission, key))
            }
            // Without a login nothing is limited; if one is required, no request reaches this
            // before it.
            Self::None | Self::InProgress(_) => false,
        }
    }

    /// The name of the logged-in user.
    #[must_use]
    pub fn user(&self) -> Option<&[u8]> {
        match self {
            Self::Ok(user) => Some(&user.name),
            Self::None | Self::InProgress(_) => None,
        }
    }

    /// True if some actions are forbidden to the user.
    #[inline]
    #[must_use]
    pub fn is_limited(&self) -> bool {
        matches!(self, Self::Ok(user) if user.rights.is_some())
    }

    /// True if the user may not administer the server.
    #[must_use]
    pub fn forbids_admin(&self) -> bool {
        match self {
            Self::Ok(user) => user.rights.as_ref().is_some_and(|rights| !rights.admin),
            Self::None | Self::InProgress(_) => false,
        }
    }
}
