//! Reads numbers, sizes, switches, words, durations and pairs.
//!
//! Strings and lists of them are read in `reader` and `lists`.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::sizes;
use super::units::{self, word_or};
use super::{Fault, Located, Optional, Table, time_units};
use crate::base::fields::decimal;
use crate::config::schema::{self, Kind, Opt};

/// The value of a whole number of at least zero; `None` if it does not fit 64 bits.
pub(in crate::config) fn whole_number(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

impl Table<'_> {
    /// A whole number within the range that the schema gives.
    pub(in crate::config) fn count<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        self.count_at(key).map(Spanned::into_inner)
    }

    /// A whole number within the range that the schema gives, with its position.
    pub(in crate::config) fn count_at<T: TryFrom<u64>>(&self, key: &str) -> Option<Located<T>> {
        self.read(key, |option, value| {
            let DeValue::Integer(number) = value.get_ref() else { return self.mismatched(key, option, value) };
            let in_range = whole_number(number).filter(|number| option.kind.allows(*number));
            self.within_range(key, option, value.span(), in_range.and_then(|number| T::try_from(number).ok()))
        })
    }

    /// A whole number within the range that the schema gives; `None` for the word that the schema gives.
    pub(in crate::config) fn count_or(&self, key: &str) -> Option<Located<Option<u64>>> {
        let option = schema::find(&self.path_of(key))?;
        let Kind::CountOr(_, _, word) = option.kind else { return None };
        match self.get(key).map(Spanned::get_ref) {
            None | Some(DeValue::String(_)) => self.parsed_at(key, |text| {
                word_or(text, &[(word, None)], |_| Err(Fault::new(format!("expected {}", option.kind))))
            }),
            Some(_) => self.count_at(key).map(|count| Spanned::new(count.span(), Some(count.into_inner()))),
        }
    }

    /// A number of bytes within the range that the schema gives. The word for no bound is `u64::MAX`.
    pub(in crate::config) fn size<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        let size = self.read(key, |option, value| {
            let DeValue::String(text) = value.get_ref() else { return self.mismatched(key, option, value) };
            let (min, max, words) = match option.kind {
                Kind::Size(min, max) => (min, max, None),
                Kind::SizeOr(min, max, word) => (min, max, Some((word, u64::MAX))),
                _ => return None,
            };
            let size = self.parse(key, value.span(), text, |text| word_or(text, words.as_slice(), sizes::size))?;
            let is_word = words.is_some() && size == u64::MAX;
            let in_range = Some(size).filter(|size| is_word || (min..=max).contains(size));
            self.within_range(key, option, value.span(), in_range.and_then(|size| T::try_from(size).ok()))
        });
        size.map(Spanned::into_inner)
    }

    fn within_range<T>(&self, key: &str, option: &Opt, span: Range<usize>, read: Option<T>) -> Option<T> {
        if read.is_none() {
            self.fault(key, span, format!("expected {}", option.kind));
        }
        read
    }

    /// `true` or `false`.
    pub(in crate::config) fn switch(&self, key: &str) -> Option<bool> {
        let read = self.read(key, |option, value| match value.get_ref() {
            DeValue::Boolean(switch) => Some(*switch),
            _ => self.mismatched(key, option, value),
        });
        read.map(Spanned::into_inner)
    }

    /// A whole percentage, at least `min`.
    pub(in crate::config) fn percent(&self, key: &str, min: u8, help: Option<&str>) -> Option<u8> {
        let number = |text: &str| {
            let number = decimal(text.strip_suffix('%')?.as_bytes())?;
            u8::try_from(number).ok().filter(|percent| (min..=100).contains(percent))
        };
        self.parsed(key, |text| {
            let fault = || Fault::new(format!("`{text}` is not a whole percentage from `{min}%` to `100%`"));
            number(text).ok_or_else(|| fault().help(help))
        })
    }

    /// One of some words.
    pub(in crate::config) fn choice<T: Clone>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.parsed(key, units::one_of(words))
    }

    /// A duration above zero, within the range that the schema may give.
    pub(in crate::config) fn duration(&self, key: &str) -> Option<Duration> {
        self.duration_at(key).map(Spanned::into_inner)
    }

    /// A duration above zero, within the range that the schema may give, with its position.
    pub(in crate::config) fn duration_at(&self, key: &str) -> Option<Located<Duration>> {
        let option = schema::find(&self.path_of(key))?;
        let duration = self.parsed_at(key, time_units::duration)?;
        let Kind::DurationIn(min, max) = option.kind else { return Some(duration) };
        let bounds = Duration::from_millis(min)..=Duration::from_millis(max);
        let span = duration.span();
        self.within_range(key, option, span, Some(duration).filter(|duration| bounds.contains(duration.get_ref())))
    }

    /// A duration above zero, or the word for none.
    pub(in crate::config) fn duration_or(&self, key: &str) -> Optional<Duration> {
        let Kind::DurationOr(word) = schema::find(&self.path_of(key))?.kind else { return None };
        self.parsed(key, |text| word_or(text, &[(word, None)], |text| time_units::duration(text).map(Some)))
    }

    /// Names and strings, in the order they are written.
    pub(in crate::config) fn pairs(&self, key: &str) -> Vec<(Located<String>, Located<String>)> {
        let pairs = self.read(key, |option, value| {
            let DeValue::Table(entries) = value.get_ref() else { return self.mismatched(key, option, value) };
            let mut pairs = Vec::new();
            for (name, value) in entries {
                let Some(text) = value.get_ref().as_str() else {
                    self.mismatch(key, &option.kind.to_string(), value);
                    continue;
                };
                let name = Spanned::new(name.span(), name.get_ref().clone().into_owned());
                pairs.push((name, Spanned::new(value.span(), text.to_owned())));
            }
            pairs.sort_by_key(|(name, _)| name.span().start);
            Some(pairs)
        });
        pairs.map(Spanned::into_inner).unwrap_or_default()
    }
}
