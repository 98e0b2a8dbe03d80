//! The commands of memcached's protocols and mcrouter's leases, and the classes that routes use.
//!
//! This is the only list of commands. Code that depends on a command matches on it exhaustively, so
//! that a new one does not compile until each place handles it.

/// A command of one request. Binary commands have no separate variants: each means a classic or a
/// meta command.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Command {
    /// add
    Add,
    /// append
    Append,
    /// cas
    Cas,
    /// decr
    Decr,
    /// delete
    Delete,
    /// `flush_all`; with a key `flush_prefix`, for the keys that start with it
    FlushAll,
    /// gat
    Gat,
    /// gats
    Gats,
    /// get
    Get,
    /// gets
    Gets,
    /// incr
    Incr,
    /// lease-get
    LeaseGet,
    /// lease-set
    LeaseSet,
    /// ma
    MetaArithmetic,
    /// me
    MetaDebug,
    /// md
    MetaDelete,
    /// metaget
    MetaInfo,
    /// mg
    MetaGet,
    /// ms
    MetaSet,
    /// prepend
    Prepend,
    /// replace
    Replace,
    /// set
    Set,
    /// touch
    Touch,
    /// version
    Version,
}

/// mcrouter's classes of commands, which `RoutingGroupRoute` and `failover_errors` use.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CommandClass {
    /// incr, decr.
    Arithmetic,
    /// delete.
    Delete,
    /// get, gets, gat, gats, lease-get, metaget.
    Get,
    /// touch, `flush_all`, version.
    Other,
    /// set, add, replace, append, prepend, cas, lease-set.
    Update,
}

impl Command {
    /// All commands.
    pub const ALL: [Self; 24] = [
        Self::Add,
        Self::Append,
        Self::Cas,
        Self::Decr,
        Self::Delete,
        Self::FlushAll,
        Self::Gat,
        Self::Gats,
        Self::Get,
        Self::Gets,
        Self::Incr,
        Self::LeaseGet,
        Self::LeaseSet,
        Self::MetaArithmetic,
        Self::MetaDebug,
        Self::MetaDelete,
        Self::MetaInfo,
        Self::MetaGet,
        Self::MetaSet,
        Self::Prepend,
        Self::Replace,
        Self::Set,
        Self::Touch,
        Self::Version,
    ];

    /// The commands that configurations name, in the order of their names.
    pub fn named() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|command| !command.is_meta() && *command != Self::Version)
    }

    /// For a meta command, the classic one that it resembles, regardless of its words; otherwise
    /// the command itself.
    #[inline]
    #[must_use]
    pub const fn classic(self) -> Self {
        match self {
            Self::MetaArithmetic => Self::Incr,
            Self::MetaDebug => Self::MetaInfo,
            Self::MetaDelete => Self::Delete,
            Self::MetaGet => Self::Get,
            Self::MetaSet => Self::Set,
            Self::Add
            | Self::Append
            | Self::Cas
            | Self::Decr
            | Self::Delete
            | Self::FlushAll
            | Self::Gat
            | Self::Gats
            | Self::Get
            | Self::Gets
            | Self::Incr
            | Self::LeaseGet
            | Self::LeaseSet
            | Self::MetaInfo
            | Self::Prepend
            | Self::Replace
            | Self::Set
            | Self::Touch
            | Self::Version => self,
        }
    }

    /// The class of the command.
    #[inline]
    #[must_use]
    pub const fn class(self) -> CommandClass {
        match self {
            Self::Decr | Self::Incr | Self::MetaArithmetic => CommandClass::Arithmetic,
            Self::Delete | Self::MetaDelete => CommandClass::Delete,
            Self::Gat
            | Self::Gats
            | Self::Get
            | Self::Gets
            | Self::LeaseGet
            | Self::MetaDebug
            | Self::MetaGet
            | Self::MetaInfo => CommandClass::Get,
            Self::FlushAll | Self::Touch | Self::Version => CommandClass::Other,
            Self::Add
            | Self::Append
            | Self::Cas
            | Self::LeaseSet
            | Self::MetaSet
            | Self::Prepend
            | Self::Replace
            | Self::Set => CommandClass::Update,
        }
    }

    /// mcrouter's name of the command; for a meta command, the name of its classic one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Append => "append",
            Self::Cas => "cas",
            Self::Decr => "decr",
            Self::Delete | Self::MetaDelete => "delete",
            Self::FlushAll => "flushall",
            Self::Gat => "gat",
            Self::Gats => "gats",
            Self::Get | Self::MetaGet => "get",
            Self::Gets => "gets",
            Self::Incr | Self::MetaArithmetic => "incr",
            Self::LeaseGet => "lease-get",
            Self::LeaseSet => "lease-set",
            Self::MetaDebug | Self::MetaInfo => "metaget",
            Self::Prepend => "prepend",
            Self::Replace => "replace",
            Self::Set | Self::MetaSet => "set",
            Self::Touch => "touch",
            Self::Version => "version",
        }
    }

    /// The command that `name` means in a configuration, one of [`Self::named`].
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::named().find(|command| command.name() == name)
    }

    /// True if a data block follows the line.
    #[inline]
    #[must_use]
    pub const fn has_value(self) -> bool {
        match self {
            Self::Add
            | Self::Append
            | Self::Cas
            | Self::LeaseSet
            | Self::MetaSet
            | Self::Prepend
            | Self::Replace
            | Self::Set => true,
            Self::Decr
            | Self::Delete
            | Self::FlushAll
            | Self::Gat
            | Self::Gats
            | Self::Get
            | Self::Gets
            | Self::Incr
            | Self::LeaseGet
            | Self::MetaArithmetic
            | Self::MetaDebug
            | Self::MetaDelete
            | Self::MetaGet
            | Self::MetaInfo
            | Self::Touch
            | Self::Version => false,
        }
    }

    /// True if the command belongs to the meta protocol.
    #[inline]
    #[must_use]
    pub const fn is_meta(self) -> bool {
        matches!(
            self,
            Self::MetaArithmetic
                | Self::MetaDebug
                | Self::MetaDelete
                | Self::MetaGet
                | Self::MetaSet
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_commands_are_found_by_name_and_are_classic() {
        assert_eq!(Command::named().count(), 18, "all but five of meta, and version");
        for command in Command::named() {
            assert_eq!(Command::by_name(command.name()), Some(command));
            assert_eq!(command.classic(), command);
        }
        assert_eq!(Command::by_name("version"), None);
    }

    #[test]
    fn meta_commands_have_the_name_and_class_of_their_classic_form() {
        for command in Command::ALL {
            let classic = command.classic();
            assert_eq!((command.name(), command.class()), (classic.name(), classic.class()));
            assert!(!classic.is_meta());
        }
    }

    #[test]
    fn only_update_commands_have_a_value() {
        for command in Command::ALL {
            assert_eq!(command.has_value(), command.class() == CommandClass::Update, "{command:?}");
        }
    }

    #[test]
    fn command_names_are_sorted() {
        assert!(Command::named().is_sorted_by_key(Command::name));
    }
}
