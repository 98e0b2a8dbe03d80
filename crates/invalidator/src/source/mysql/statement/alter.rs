//! `ALTER TABLE`: each of its parts either leaves the values of rows unchanged or does not.

use changes::change::Effect;

use super::cursor::Cursor;

/// First words of parts that leave values unchanged: keys, defaults, options, and partitions that
/// keep their rows.
const HARMLESS: [&str; 31] = [
    "ALGORITHM",
    "ANALYZE",
    "AUTO_INCREMENT",
    "AVG_ROW_LENGTH",
    "CHARACTER",
    "CHARSET",
    "CHECK",
    "CHECKSUM",
    "COALESCE",
    "COLLATE",
    "COMMENT",
    "COMPRESSION",
    "DEFAULT",
    "DELAY_KEY_WRITE",
    "DISABLE",
    "ENABLE",
    "FORCE",
    "KEY_BLOCK_SIZE",
    "LOCK",
    "MAX_ROWS",
    "MIN_ROWS",
    "OPTIMIZE",
    "PACK_KEYS",
    "PARTITION",
    "REBUILD",
    "REMOVE",
    "REORGANIZE",
    "ROW_FORMAT",
    "STATS_AUTO_RECALC",
    "STATS_PERSISTENT",
    "STATS_SAMPLE_PAGES",
];

/// Engines that keep rows.
const ENGINES: [&str; 4] = ["ARIA", "INNODB", "MYISAM", "ROCKSDB"];

/// Objects that may be dropped without a change of any value.
const DROPPED: [&str; 4] = ["CHECK", "INDEX", "KEY", "PRIMARY"];

/// Objects that may be a foreign key, which may have changed rows until then.
const FOREIGN_KEYS: [&str; 2] = ["CONSTRAINT", "FOREIGN"];

/// The engine with foreign keys. A change to any other one drops them.
const ENGINE_WITH_KEYS: &str = "INNODB";

/// The effect of the statement; the cursor is after `TABLE`. If foreign keys change rows without a
/// trace, their end is a change of the rows: the check finds them only while they exist.
pub(super) fn effect(
    cursor: &mut Cursor<'_>,
    ignores_rows: bool,
    has_unlogged_cascades: bool,
) -> Effect {
    let _ = cursor.skip("IF") && cursor.skip("EXISTS");
    let Some(table) = cursor.table() else { return Effect::Unknown };
    cursor.skip_wait();
    let mut tables = if ignores_rows { vec![table.clone()] } else { Vec::new() };
    for mut part in cursor.parts() {
        let Some(word) = part.word() else { return Effect::Unknown };
        match word.as_str() {
            // Columns follow, with commas between them.
            "ORDER" => break,
            "RENAME" if part.skip("INDEX") || part.skip("KEY") => {}
            "RENAME" if !part.skip("COLUMN") => {
                let _ = part.skip("TO") || part.skip("AS") || part.skip_sign('=');
                let Some(other) = part.table() else { return Effect::Unknown };
                tables.extend([table.clone(), other]);
            }
            "EXCHANGE" | "CONVERT" if !part.has_outside(&["CHARACTER", "CHARSET"]) => {
                while !part.is_at_end() && !part.skip("TABLE") {
                    part.step();
                }
                let Some(other) = part.table() else { return Effect::Unknown };
                tables.extend([table.clone(), other]);
            }
            word if !keeps_values(word, &mut part, has_unlogged_cascades) => {
                tables.push(table.clone())
            }
            _ => {}
        }
    }
    if tables.is_empty() { Effect::None } else { Effect::Tables(tables) }
}

/// True if the part that starts with this word leaves every value unchanged.
fn keeps_values(word: &str, part: &mut Cursor<'_>, has_unlogged_cascades: bool) -> bool {
    match word {
        // Cached values have no such column.
        "ADD" => !part.skip("SYSTEM") && !part.skip("PERIOD"),
        "ALTER" => true,
        "DROP" if FOREIGN_KEYS.iter().any(|word| part.skip(word)) => !has_unlogged_cascades,
        "DROP" => DROPPED.iter().any(|word| part.skip(word)),
        "ENGINE" => {
            part.skip_sign('=');
            let name = part.name().unwrap_or_default().to_ascii_uppercase();
            name == ENGINE_WITH_KEYS || ENGINES.contains(&name.as_str()) && !has_unlogged_cascades
        }
        word => HARMLESS.contains(&word) && !part.has_outside(&["ENGINE", "UNION"]),
    }
}
