//! The findings of a check of a database's settings.

/// Something about a server that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// True when changes would be lost.
    pub is_fatal: bool,
    /// The fault and its remedy.
    pub text: String,
}

impl Finding {
    pub(crate) const fn fatal(text: String) -> Self {
        Self { is_fatal: true, text }
    }

    /// This finding with the server's name in front.
    pub(crate) fn of(self, server: &str) -> Self {
        Self { text: format!("{server}: {}", self.text), ..self }
    }
}
