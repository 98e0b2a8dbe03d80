//! The commands that routes tell apart.

/// A command of the classic protocol. Meta and binary commands count as the classic one that they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the command of that name")]
pub enum Operation {
    Add,
    Append,
    Cas,
    Decr,
    Delete,
    FlushAll,
    Gat,
    Gats,
    Get,
    Gets,
    Incr,
    LeaseGet,
    LeaseSet,
    Metaget,
    Prepend,
    Replace,
    Set,
    Touch,
}

/// mcrouter's classes of commands, which `RoutingGroupRoute` and failover errors go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationClass {
    /// incr, decr.
    Arithmetic,
    /// delete.
    Delete,
    /// get, gets, gat, gats, lease-get, metaget.
    Get,
    /// touch, `flush_all`.
    Other,
    /// set, add, replace, append, prepend, cas, lease-set.
    Update,
}

impl Operation {
    /// All, with their names in configurations and on the wire.
    pub const ALL: [(&str, Self); 18] = [
        ("add", Self::Add),
        ("append", Self::Append),
        ("cas", Self::Cas),
        ("decr", Self::Decr),
        ("delete", Self::Delete),
        ("flushall", Self::FlushAll),
        ("gat", Self::Gat),
        ("gats", Self::Gats),
        ("get", Self::Get),
        ("gets", Self::Gets),
        ("incr", Self::Incr),
        ("lease-get", Self::LeaseGet),
        ("lease-set", Self::LeaseSet),
        ("metaget", Self::Metaget),
        ("prepend", Self::Prepend),
        ("replace", Self::Replace),
        ("set", Self::Set),
        ("touch", Self::Touch),
    ];

    /// The command of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, operation)| operation)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Its class.
    #[inline]
    #[must_use]
    pub const fn class(self) -> OperationClass {
        match self {
            Self::Incr | Self::Decr => OperationClass::Arithmetic,
            Self::Delete => OperationClass::Delete,
            Self::Gat | Self::Gats | Self::Get | Self::Gets | Self::LeaseGet | Self::Metaget => {
                OperationClass::Get
            }
            Self::FlushAll | Self::Touch => OperationClass::Other,
            Self::Add
            | Self::Append
            | Self::Cas
            | Self::LeaseSet
            | Self::Prepend
            | Self::Replace
            | Self::Set => OperationClass::Update,
        }
    }
}
