//! The pages of a list with a search.

use super::fields::{FormFields, link};

/// Rows of one page.
pub(super) const ROWS: usize = 50;
/// Most pages of a list. A search finds rows behind them.
pub(super) const PAGES_MAX: usize = 20;

/// The fields of a query that stay on another page of the same list.
const KEPT: [&str; 4] = ["name", "search", "sort", "minutes"];

/// The position of a page in its list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paging {
    /// The number of the first row, from 1; 0 without rows.
    pub(super) first: usize,
    /// The number of the last row.
    pub(super) last: usize,
    /// The rows of all pages.
    pub(super) count: usize,
    pub(super) previous: Option<String>,
    pub(super) next: Option<String>,
    /// Whether rows are behind the last page.
    pub(super) has_hidden: bool,
}

impl Paging {
    /// The page that `query` asks for, or the last one, of the list at `path` with `count` rows.
    pub(super) fn of(path: &str, query: &FormFields, count: usize) -> Self {
        let page = number(query).min(count.div_ceil(ROWS).max(1));
        let before = (page - 1) * ROWS;
        let to = |page: usize| {
            let page = page.to_string();
            link(
                path,
                &KEPT.map(|name| (name, query.get(name))).into_iter().chain([("page", &*page)]).collect::<Vec<_>>(),
            )
        };
        let last = count.min(page * ROWS);
        Self {
            first: if last > before { before + 1 } else { 0 },
            last,
            count,
            previous: (page > 1).then(|| to(page - 1)),
            next: (count > page * ROWS && page < PAGES_MAX).then(|| to(page + 1)),
            has_hidden: page == PAGES_MAX && count > page * ROWS,
        }
    }

    /// The rows before the page.
    pub(super) fn before(&self) -> usize {
        self.first.saturating_sub(1)
    }
}

/// The number of the page that `query` asks for, from 1.
pub(super) fn number(query: &FormFields) -> usize {
    query.get("page").parse().map_or(1, |page: usize| page.clamp(1, PAGES_MAX))
}

/// The rows of the page that `query` asks for, or of the last one: those with a text that contains its search in any case.
pub(super) fn paged<T>(
    rows: Vec<T>,
    path: &str,
    query: &FormFields,
    texts: impl for<'t> Fn(&'t T) -> [&'t str; 3],
) -> (Vec<T>, Paging) {
    let search = query.get("search").to_lowercase();
    let is_found = |row: &T| search.is_empty() || texts(row).iter().any(|text| text.to_lowercase().contains(&search));
    let found: Vec<T> = rows.into_iter().filter(is_found).collect();
    let paging = Paging::of(path, query, found.len());
    (found.into_iter().skip(paging.before()).take(ROWS).collect(), paging)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_pages_and_a_search() {
        let rows = || (0..1234).map(|number| format!("Row {number}")).collect::<Vec<_>>();
        for (query, first, of) in [
            ("", "Row 0", (1, 50, 1234, None, Some("/bans?page=2"), false)),
            (
                "page=2&search=ROW",
                "Row 50",
                (51, 100, 1234, Some("/bans?search=ROW&page=1"), Some("/bans?search=ROW&page=3"), false),
            ),
            ("page=20", "Row 950", (951, 1000, 1234, Some("/bans?page=19"), None, true)),
            ("page=99", "Row 950", (951, 1000, 1234, Some("/bans?page=19"), None, true)),
            ("search=w+123", "Row 123", (1, 5, 5, None, None, false)),
            ("search=none", "", (0, 0, 0, None, None, false)),
            ("page=2&search=w+1233", "Row 1233", (1, 1, 1, None, None, false)),
            ("page=two", "Row 0", (1, 50, 1234, None, Some("/bans?page=2"), false)),
        ] {
            let (page, paging) = paged(rows(), "/bans", &FormFields::parse(query.as_bytes()), |row| [row, "", ""]);
            let Paging { first: from, last, count, previous, next, has_hidden } = &paging;
            assert_eq!(page.first().map_or("", |row| row), first, "{query}");
            assert_eq!((*from, *last, *count, previous.as_deref(), next.as_deref(), *has_hidden), of, "{query}");
        }
    }
}
