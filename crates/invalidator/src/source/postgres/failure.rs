//! Failures of connections to PostgreSQL, and the invalidator's response to each.

use std::io;

use certs::CertsError;

use crate::change_source::SourceError;
use crate::source::ssl_mode::is_bad_certificate;

/// The reason why a request to a server failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The socket failed, or a message is malformed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server did not answer in time.
    #[error("the server is silent")]
    Silent,
    /// The server sent a message that does not belong here.
    #[error("the server sent an unexpected message: {0}")]
    Unexpected(&'static str),
    /// The server sent a message that is too long, in bytes.
    #[error("the server sent a message of {0} bytes")]
    TooLong(usize),
    /// The server refused a request.
    #[error("{message}")]
    Refused {
        /// Its SQLSTATE, five characters.
        code: String,
        /// Its message, with the detail.
        message: String,
    },
    /// The server skipped changes, and warned of it.
    #[error("{0}")]
    Skipped(String),
    /// The server requires an unsupported kind of login.
    #[error("the server asks for a login other than by password")]
    Login,
    /// The server requested the password in clear text without a verified certificate.
    #[error(
        "the server asks for the password in clear text, which needs sslmode = \"verify-full\" or \
         \"verify-ca\""
    )]
    ClearText,
    /// The server failed to prove that it knows the password, or violated the login protocol.
    #[error("password authentication failed: {0}")]
    Scram(#[source] io::Error),
    /// The configuration requires TLS and the server has none.
    #[error(
        "the server does not offer TLS, which sslmode requires; with sslmode = \"disable\" it is not asked for"
    )]
    NoTls,
    /// The TLS settings cannot be used.
    #[error(transparent)]
    TlsSettings(#[from] CertsError),
    /// No certificate can be for the server's name.
    #[error("no certificate can be for '{0}'")]
    ServerName(String),
}

/// `undefined_file`: a segment of the log is gone, or a timeline's history. A slot that lost its
/// log is found by its status when it is opened.
pub(super) const NO_SUCH_FILE: &str = "58P01";

impl Failure {
    /// The resulting error for a source whose log at `server` ended with this.
    pub(super) fn in_log(&self, server: &str) -> SourceError {
        let is_of_place = match self {
            Self::Refused { code, .. } => is_of_place(code),
            Self::Skipped(_) => true,
            _ => false,
        };
        match is_of_place {
            true => SourceError::Purged(format!("{server}: at this place of the log, {self}")),
            false => self.at(server),
        }
    }

    /// The resulting error for a source that reads at `server`.
    pub(super) fn at(&self, server: &str) -> SourceError {
        let text = format!("{server}: {self}");
        match self {
            Self::Refused { code, .. } => {
                if code == NO_SUCH_FILE {
                    SourceError::Purged(text)
                } else if is_permanent(code) {
                    SourceError::Wrong(text)
                } else {
                    SourceError::Lost(text)
                }
            }
            Self::Login
            | Self::ClearText
            | Self::Scram(_)
            | Self::NoTls
            | Self::TlsSettings(_)
            | Self::ServerName(_) => SourceError::Wrong(text),
            Self::Io(error) if is_bad_certificate(error) => SourceError::Wrong(text),
            Self::Io(_)
            | Self::Closed
            | Self::Silent
            | Self::Unexpected(_)
            | Self::TooLong(_)
            | Self::Skipped(_) => SourceError::Lost(text),
        }
    }
}

/// True for SQLSTATEs of an error that comes again at the same place of the log: values that the
/// server cannot send, and names that did not exist there. The server reads them in its catalogue
/// as it was at that place, so that it does not help to create them.
fn is_of_place(code: &str) -> bool {
    // Class 22 is "data exception".
    code.starts_with("22") || code == "42704"
}

/// True if a warning says that the server skips changes. PostgreSQL 18 sends it where earlier
/// versions end the log with 42704: the publication did not exist there. Only the plugin that reads
/// the publication skips changes. PostgreSQL 17 sends the same SQLSTATE from `slot.c` while it only
/// waits for a standby of `synchronized_standby_slots`. The file is not translated, as the text is.
pub(super) fn is_of_skipped(code: &str, file: &str) -> bool {
    code == "55000" && file == "pgoutput.c"
}

/// `character_not_in_repertoire` and `untranslatable_character`.
const OF_ENCODING: [&str; 2] = ["22021", "22P05"];

/// True if a text has bytes that are invalid in its encoding, or that another encoding lacks.
pub(super) fn is_of_encoding(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { code, .. } if OF_ENCODING.contains(&code.as_str()))
}

/// True for SQLSTATEs that a retry does not change: logins, rights, missing names.
fn is_permanent(code: &str) -> bool {
    // Class 28 is "invalid authorization".
    code.starts_with("28") || ["42501", "42704", "42P01", "3D000", "3F000"].contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_judged_by_its_code() {
        let refused = |code: &str, message: &str| {
            Failure::Refused { code: code.to_owned(), message: message.to_owned() }.at("db:5432")
        };
        let wrong = |text: &str| SourceError::Wrong(format!("db:5432: {text}"));
        assert_eq!(refused("28P01", "Passwort falsch"), wrong("Passwort falsch"));
        assert_eq!(refused("42704", "no publication"), wrong("no publication"));
        // The slot is in use: its holder may leave.
        assert!(matches!(refused("55006", "slot is active"), SourceError::Lost(_)));
        let removed = "das angeforderte WAL-Segment 00 wurde schon entfernt";
        assert!(matches!(refused("58P01", removed), SourceError::Purged(_)));
        // What the log has at a place does not change.
        let in_log = |code: &str| {
            let message = "publication \"cached\" does not exist".to_owned();
            Failure::Refused { code: code.to_owned(), message }.in_log("db:5432")
        };
        for code in ["42704", "22021", "22P05"] {
            assert!(matches!(in_log(code), SourceError::Purged(_)), "{code}");
        }
        assert!(matches!(in_log("57P01"), SourceError::Lost(_)));
        // As an error, it has another cause than as a warning.
        assert!(matches!(in_log("55000"), SourceError::Lost(_)));
        let skipped = Failure::Skipped("skipped loading publication \"cached\"".to_owned());
        assert!(matches!(skipped.in_log("db:5432"), SourceError::Purged(_)));
        assert!(matches!(in_log("42501"), SourceError::Wrong(_)));
        // The next attempt to open the slot shows whether it is lost.
        assert!(matches!(refused("55000", "slot can no longer get changes"), SourceError::Lost(_)));
    }
}
