//! Foreign keys that change the rows of their table when another table changes.

use changes::sql::{Token, Tokens};

use super::cursor::Cursor;
use super::is_word;

/// The foreign keys of a `SHOW CREATE TABLE` with names in backticks: the name of each that changes
/// rows, and its parent's.
pub(in super::super) fn cascades(schema: &str, description: &str) -> Vec<(String, String)> {
    let tokens = Tokens::new(description, true).skip_while(|token| *token != Token::Sign('('));
    let mut depth = 0;
    let is_inside = |token: &Token<'_>| {
        match token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth -= 1,
            _ => {}
        }
        depth >= 0
    };
    let body: Vec<_> = tokens.skip(1).take_while(is_inside).collect();
    Cursor::new(&body, schema).parts().into_iter().filter_map(cascade).collect()
}

/// `CONSTRAINT name FOREIGN KEY (..) REFERENCES parent (..) ON DELETE CASCADE`; none for any other
/// part, and for a key that changes nothing.
fn cascade(mut part: Cursor<'_>) -> Option<(String, String)> {
    if !part.skip("CONSTRAINT") {
        return None;
    }
    // A name that is not UTF-8 is still a name.
    let key = part.name().unwrap_or_default();
    let at = part.rest().iter().position(|token| is_word(token, "REFERENCES"))?;
    for _ in 0..=at {
        part.step();
    }
    let parent = part.table().unwrap_or_default();
    part.has_outside(&["CASCADE", "SET"]).then_some((key, parent))
}

/// The table of a statement that may give it such a foreign key: `CREATE TABLE` or `ALTER TABLE`
/// with `ON DELETE CASCADE` or the like.
pub(super) fn added(schema: &str, tokens: &[Token<'_>]) -> Option<String> {
    let has = |token, words: [&str; 2]| words.iter().any(|word| is_word(token, word));
    tokens.windows(3).find(|three| {
        is_word(&three[0], "ON")
            && has(&three[1], ["DELETE", "UPDATE"])
            && has(&three[2], ["CASCADE", "SET"])
    })?;
    let at = tokens.iter().position(|token| is_word(token, "TABLE"))?;
    let mut cursor = Cursor::new(&tokens[at + 1..], schema);
    if cursor.skip("IF") {
        cursor.skip("NOT");
        cursor.skip("EXISTS");
    }
    cursor.table()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cascading_foreign_keys_are_found() {
        let text = "CREATE TABLE `kid` (\n  `id` int(11) NOT NULL DEFAULT 0 COMMENT 'a, (it''s)',\n  \
            `on` enum('CASCADE','b') DEFAULT NULL CHECK (`id` > 0),\n  PRIMARY KEY (`id`),\n  \
            CONSTRAINT `one` FOREIGN KEY (`id`,`on`) REFERENCES `p``ar` (`a`,`b`) ON DELETE CASCADE,\n  \
            CONSTRAINT `two` FOREIGN KEY (`id`) REFERENCES `CASCADE` (`SET`),\n  \
            CONSTRAINT `three` FOREIGN KEY (`id`) REFERENCES `o`.`par` (`a`) ON DELETE NO ACTION \
            ON UPDATE SET NULL,\n  CONSTRAINT `four` CHECK (`on` <> 'REFERENCES x ON DELETE CASCADE')\n\
            ) ENGINE=InnoDB SET COMMENT='FOREIGN KEY, CONSTRAINT x REFERENCES y ON DELETE CASCADE'";
        let found = cascades("shop", text);
        let expected = [("one", "shop.p`ar"), ("three", "o.par")];
        assert_eq!(found, expected.map(|(key, parent)| (key.to_owned(), parent.to_owned())));
    }
}
