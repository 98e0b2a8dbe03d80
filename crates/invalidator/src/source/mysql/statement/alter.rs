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

/// Objects that may be a foreign key.
const FOREIGN_KEYS: [&str; 2] = ["CONSTRAINT", "FOREIGN"];

/// The effect of the statement; the cursor is after `TABLE`. The end of a foreign key is a change
/// of the rows if keys of its table may have changed rows without a trace.
pub(super) fn effect(
    cursor: &mut Cursor<'_>,
    ignores_rows: bool,
    may_cascade: impl Fn(&str) -> bool,
) -> Effect {
    let _ = cursor.skip("IF") && cursor.skip("EXISTS");
    let Some(table) = cursor.table() else { return Effect::Unknown };
    cursor.skip_wait();
    let may_cascade = may_cascade(&table);
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
            word if !keeps_values(word, &mut part, may_cascade) => tables.push(table.clone()),
            _ => {}
        }
    }
    if tables.is_empty() { Effect::None } else { Effect::Tables(tables) }
}

/// True if the part that starts with this word leaves every value unchanged.
fn keeps_values(word: &str, part: &mut Cursor<'_>, may_cascade: bool) -> bool {
    match word {
        // Cached values have no such column.
        "ADD" => !part.skip("SYSTEM") && !part.skip("PERIOD"),
        "ALTER" => true,
        "DROP" if FOREIGN_KEYS.iter().any(|word| part.skip(word)) => !may_cascade,
        "DROP" => DROPPED.iter().any(|word| part.skip(word)),
        "ENGINE" => {
            part.skip_sign('=');
            part.name().is_some_and(|name| ENGINES.contains(&name.to_ascii_uppercase().as_str()))
        }
        word => HARMLESS.contains(&word) && !part.has_outside(&["ENGINE", "UNION"]),
    }
}
