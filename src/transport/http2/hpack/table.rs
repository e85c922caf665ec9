//! The static and the dynamic table of HPACK (RFC 7541, section 2.3).

use std::collections::VecDeque;

/// A field: name and value.
pub(super) type Field<'t> = (&'t [u8], &'t [u8]);

/// What an entry counts for beside its bytes (RFC 7541, section 4.1).
const OVERHEAD: usize = 32;

/// Bytes of evicted entries that may lie in memory.
const EVICTED_MAX: usize = 1024;

/// The fields that a decoder knows because they came before; newest first.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// From the newest on.
    entries: VecDeque<Entry>,
    /// Names and values, from the oldest on, behind `evicted` bytes of no use.
    bytes: Vec<u8>,
    evicted: usize,
    /// The offset of the first byte; offsets count from the first entry ever, modulo 2^32.
    base: u32,
    /// As RFC 7541, section 4.1, counts it.
    size: usize,
    size_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    name_len: u16,
    value_len: u16,
}

impl DynamicTable {
    /// An empty table that may grow to `size_max`, which is less than 64 KiB.
    pub(super) fn new(size_max: usize) -> Self {
        let size_max = size_max.min(u16::MAX.into());
        Self { entries: VecDeque::new(), bytes: Vec::new(), evicted: 0, base: 0, size: 0, size_max }
    }

    /// The field at `index`; 0 is the newest.
    pub(super) fn get(&self, index: usize) -> Option<Field<'_>> {
        let entry = self.entries.get(index)?;
        let start = entry.at.wrapping_sub(self.base) as usize;
        let value_at = start + usize::from(entry.name_len);
        let value_end = value_at + usize::from(entry.value_len);
        Some((self.bytes.get(start..value_at)?, self.bytes.get(value_at..value_end)?))
    }

    /// Adds a field as the newest. One larger than the table empties it (RFC 7541, section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(self.size_max.saturating_sub(size));
        let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u16::try_from(value.len())) else { return };
        if size > self.size_max {
            return;
        }
        self.compact();
        let at = self.base.wrapping_add(u32::try_from(self.bytes.len()).unwrap_or(0));
        let len = name.len() + value.len();
        if self.bytes.capacity() - self.bytes.len() < len {
            self.bytes.reserve_exact(len.max(self.bytes.len() / 2));
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_front(Entry { at, name_len, value_len });
        self.size += size;
    }

    /// Changes the largest size.
    pub(super) fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(size_max);
        if self.entries.is_empty() {
            (self.entries, self.bytes, self.evicted) = (VecDeque::new(), Vec::new(), 0);
        }
    }

    /// Removes the oldest entries until at most `size` is left.
    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(Entry { name_len, value_len, .. }) = self.entries.pop_back() else { return };
            let len = usize::from(name_len) + usize::from(value_len);
            self.size -= len + OVERHEAD;
            self.evicted += len;
        }
    }

    fn compact(&mut self) {
        if self.evicted > EVICTED_MAX || self.entries.is_empty() {
            self.bytes.drain(..self.evicted);
            self.base = self.base.wrapping_add(u32::try_from(self.evicted).unwrap_or(0));
            self.evicted = 0;
        }
    }

    /// The size as RFC 7541 counts it.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}

/// The field at `index` of the static table, which counts from 1.
pub(super) fn static_field(index: usize) -> Option<Field<'static>> {
    let (name, value) = STATIC.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// Fields of the static table.
pub(super) const STATIC_LEN: usize = STATIC.len();

/// RFC 7541, appendix A.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The index of a response field's name, which is in lower case; 0 if the static table has none.
pub(super) fn static_name(name: &[u8]) -> u8 {
    match name {
        b"age" => 21,
        b"via" => 60,
        b"date" => 33,
        b"etag" => 34,
        b"link" => 45,
        b"vary" => 59,
        b"allow" => 22,
        b"server" => 54,
        b"expires" => 36,
        b"location" => 46,
        b"set-cookie" => 55,
        b"retry-after" => 53,
        b"content-type" => 31,
        b"accept-ranges" => 18,
        b"cache-control" => 24,
        b"content-range" => 30,
        b"last-modified" => 44,
        b"content-length" => 28,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-location" => 29,
        b"www-authenticate" => 61,
        b"content-disposition" => 25,
        b"strict-transport-security" => 56,
        b"access-control-allow-origin" => 20,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_found_in_the_static_table() {
        for index in 1..=STATIC_LEN {
            let (name, _) = static_field(index).unwrap_or_default();
            let found = usize::from(static_name(name));
            assert!(found == 0 || found == index, "{index}");
        }
        assert_eq!((static_field(0), static_field(62)), (None, None));
        assert_eq!((static_name(b"date"), static_name(b"x-date")), (33, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// The table has the newest fields that fit, whatever its memory looks like.
        #[test]
        fn the_newest_fields_that_fit_are_there(
            fields in prop::collection::vec(("[a-z]{0,40}", "[ -~]{0,300}"), 0..40),
            size_max in 0_usize..1200,
        ) {
            let mut table = DynamicTable::new(4096);
            table.resize(size_max);
            let mut expected: Vec<(&str, &str)> = Vec::new();
            for (name, value) in &fields {
                table.insert(name.as_bytes(), value.as_bytes());
                expected.insert(0, (name, value));
                let mut size = 0;
                let fits = |(name, value): &&(&str, &str)| {
                    size += name.len() + value.len() + OVERHEAD;
                    size <= size_max
                };
                let count = expected.iter().take_while(fits).count();
                expected.truncate(count);
                for (index, (name, value)) in expected.iter().enumerate() {
                    prop_assert_eq!(table.get(index), Some((name.as_bytes(), value.as_bytes())));
                }
                prop_assert_eq!(table.get(count), None);
            }
            prop_assert!(table.memory() < 8 * 1024, "{}", table.memory());
        }
    }
}
