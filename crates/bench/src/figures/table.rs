//! A table of a page.

/// A table: column names, and rows with as many texts.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Names of columns.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}
