//! The settings of a source of lines, in the table `[source]`.

use super::{Fault, Kind, Source};
use crate::source::lines;

impl Source {
    /// True where another program sends the changes.
    pub(crate) const fn is_lines(&self) -> bool {
        matches!(self.kind, Kind::Ndjson | Kind::Debezium)
    }

    /// Checks that settings occur only where they have a meaning.
    pub(super) fn lines_values(&self) -> Result<(), Fault> {
        let of_debezium = [
            ("old_rows", self.old_rows.is_some()),
            ("schemas", self.schemas.is_some()),
            ("offsets_have_holes", self.offsets_have_holes.is_some()),
        ];
        let of_databases = [
            ("servers", !self.servers.is_empty()),
            ("user", !self.user.is_empty()),
            ("password", self.password.is_some() || self.password_file.is_some()),
            ("database", self.database.is_some()),
            ("slot", self.slot.is_some()),
            ("publication", self.publication.is_some()),
            ("sslmode", self.sslmode.is_some() || self.sslrootcert.is_some()),
            ("server_id", self.server_id.is_some()),
        ];
        let first = |settings: &[(&'static str, bool)]| {
            settings.iter().find(|(_, is_there)| *is_there).map(|(name, _)| *name)
        };
        let strange = match self.kind {
            Kind::Debezium => first(&of_databases),
            Kind::Ndjson => first(&of_databases).or_else(|| first(&of_debezium)),
            _ => first(&of_debezium).or_else(|| self.listen.as_ref().map(|_| "listen")),
        };
        strange.map_or(Ok(()), |name| Err(Fault::OtherKind(name)))
    }

    /// The settings of a source of lines.
    pub(super) fn lines(&self) -> lines::Settings {
        let debezium = (self.kind == Kind::Debezium).then(|| lines::Debezium {
            old_rows: self.old_rows.unwrap_or_default(),
            schemas: self.schemas.unwrap_or_default(),
            has_holes: self.offsets_have_holes.unwrap_or_default(),
        });
        lines::Settings { listen: self.listen.clone(), debezium }
    }
}
