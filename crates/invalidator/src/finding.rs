//! What a check of a database's settings found.

/// Something about a server that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// True when changes would be lost.
    pub is_fatal: bool,
    /// What it is, and what to do.
    pub text: String,
}

impl Finding {
    pub(crate) const fn fatal(text: String) -> Self {
        Self { is_fatal: true, text }
    }

    /// The same, with the server's name before it.
    pub(crate) fn of(self, server: &str) -> Self {
        Self { text: format!("{server}: {}", self.text), ..self }
    }
}
