//! Tables for terminals: columns of texts, aligned by spaces.

use crate::base::visible::is_hidden;

/// The text without control characters and marks of direction, which could change a terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().filter(|character| !is_hidden(*character)).collect()
}

/// The lines of a table. Control characters are left out: a text may be from a client. Every row has a text for each
/// heading.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let head = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> =
        std::iter::once(head).chain(rows.iter().map(|row| row.iter().map(|text| clean(text)).collect())).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count()).max();
    let widths: Vec<usize> = (0..headings.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["né\u{1b}b\u{202e}\u{200f}".to_owned(), String::new()]];
        insta::assert_snapshot!(table(&["KEY", "LEFT"], &rows), @r"
        KEY  LEFT
        a    1
        néb
        ");
    }
}
