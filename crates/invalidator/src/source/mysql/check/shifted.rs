//! Columns of a table that the library reads at another place, or with another sign, than the
//! server wrote them, which also affects all columns after them.

use mysql_async::Row;

use super::super::server::cell;
use crate::finding::Finding;

/// The first version of MySQL that is known to count YEAR among the columns with a sign, as the
/// library does. 8.0.15 does not; the versions between are unknown.
pub(super) const YEAR_COUNTS: (u32, u32, u32) = (8, 0, 29);

/// Types that have a sign.
const SIGNED: [&str; 8] =
    ["tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"];

/// Columns in the format of MariaDB before 10.1, with fractions of a second: their size in the log
/// differs from the size that the library reads. `rows` are name, type, key, character set, and
/// type with attributes of each column, in order.
pub(super) fn columns<'r>(
    table: &'r str,
    rows: &'r [Row],
) -> impl Iterator<Item = Finding> + use<'r> {
    let is_old = |row: &&Row| is_old_form(&cell(row, 4));
    rows.iter().filter(is_old).map(move |row| {
        Finding::fatal(format!(
            "table {table}: column '{}' is a {}, and rows with parts of a second in that form \
             cannot be read in the log: set mysql56_temporal_format=ON and run ALTER TABLE {table} \
             FORCE",
            cell(row, 0),
            cell(row, 4)
        ))
    })
}

fn is_old_form(kind: &str) -> bool {
    kind.contains("mariadb-5.3") && kind.contains('(')
}

/// Columns of the rules whose sign is read as a neighbour's, because a YEAR stands before them. If
/// no column is unsigned, all have the same sign.
pub(super) fn signs(table: &str, columns: &[&str], rows: &[Row]) -> Vec<Finding> {
    let has_sign = |row: &&Row| SIGNED.contains(&cell(row, 1).to_ascii_lowercase().as_str());
    let is_unsigned = |row: &Row| cell(row, 4).to_ascii_lowercase().contains("unsigned");
    if !rows.iter().any(is_unsigned) {
        return Vec::new();
    }
    let behind = rows.iter().skip_while(|row| !cell(row, 1).eq_ignore_ascii_case("year"));
    let used = behind.filter(has_sign).map(|row| cell(row, 0));
    let used = used.filter(|name| columns.contains(&name.as_str()));
    let finding = |name: String| {
        Finding::fatal(format!(
            "table {table}: the sign of column '{name}' is not certain in the log, because a YEAR \
             stands before it: move that to the end (ALTER TABLE .. MODIFY .. AFTER ..), or use \
             MySQL 8.0.29 or later"
        ))
    };
    used.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_temporal_columns_have_a_comment_and_a_fraction() {
        assert!(is_old_form("datetime(3) /* mariadb-5.3 */"));
        assert!(is_old_form("timestamp(2) /* mariadb-5.3 */"));
        assert!(!is_old_form("datetime /* mariadb-5.3 */") && !is_old_form("datetime(3)"));
    }
}
