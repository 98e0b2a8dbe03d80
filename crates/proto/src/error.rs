//! Refusals of text and meta requests, with the reply line of each.

/// A refused request. [`Error::line`] is the exact answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Error {
    /// `ma` with an unknown or a repeated flag.
    ArithmeticFlag,
    /// `ma` with a mode that it does not have.
    ArithmeticMode,
    /// `cache_memlimit` and similar without a usable argument, an unknown command, or a line that
    /// starts with a space.
    Command,
    /// The text of a base64 key is not base64, or decodes to nothing.
    DecodingKey,
    /// A number in `incr` or `decr` is not one.
    Delta,
    /// A repeated meta flag.
    DuplicateFlag,
    /// An expiry time in `touch`, `gat`, `gats` or `flush_all` is not a number.
    Exptime,
    /// An unknown meta flag.
    InvalidFlag,
    /// The line's form: too few words, a key too long, an invalid length.
    Format,
    /// A meta line of too many words.
    ManyFlags,
    /// `O` with more than 32 bytes.
    OpaqueTooLong,
    /// A large value cannot be sent now: those in transfer to other clients hold all the memory for
    /// sending.
    OutOfMemorySending,
    /// The user has no right to this key or command.
    Permission,
    /// The key's namespace has used up its requests of this second.
    RateOfNamespace,
    /// The user has used up their requests of this second.
    RateOfUser,
    /// `ms` with a mode that it does not have.
    StoreModeUnknown,
    /// A number in a meta flag is not one.
    Token,
}

impl Error {
    /// The answer, with its line end.
    #[must_use]
    pub const fn line(self) -> &'static [u8] {
        match self {
            Self::ArithmeticFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::ArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::Command => b"ERROR\r\n",
            Self::DecodingKey => b"CLIENT_ERROR error decoding key\r\n",
            Self::Delta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::Exptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Self::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::Format => b"CLIENT_ERROR bad command line format\r\n",
            Self::ManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Self::OutOfMemorySending => b"SERVER_ERROR out of memory writing get response\r\n",
            Self::Permission => b"CLIENT_ERROR permission denied\r\n",
            Self::RateOfNamespace => {
                b"SERVER_ERROR max-requests-per-second of the namespace reached\r\n"
            }
            Self::RateOfUser => b"SERVER_ERROR max-requests-per-second of the user reached\r\n",
            Self::StoreModeUnknown => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::Token => b"CLIENT_ERROR bad token in command line format\r\n",
        }
    }
}
