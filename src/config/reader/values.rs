//! Tables, read key by key: numbers, sizes, switches, words, durations and pairs.
//!
//! Strings and lists of them are read in `reader`.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::time_units;
use super::units::{self, Fault};
use super::{Located, Table};
use crate::config::diagnostics::{did_you_mean, nearest};
use crate::config::schema::{self, Kind, Opt};

impl Table<'_> {
    /// A whole number within the range that the schema gives.
    pub(in crate::config) fn count<T: TryFrom<u64>>(&self, key: &str) -> Option<Located<T>> {
        self.read(key, |option, value| {
            let DeValue::Integer(number) = value.get_ref() else {
                self.mismatch(key, &option.kind.to_string(), value);
                return None;
            };
            let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
            let in_range = number.filter(|number| option.kind.allows(*number));
            let read = in_range.and_then(|number| T::try_from(number).ok());
            self.within_range(key, option, value.span(), read)
        })
    }

    /// A whole number within the range that the schema gives; `None` for the word that the schema gives.
    pub(in crate::config) fn count_or(&self, key: &str) -> Option<Located<Option<u64>>> {
        let option = schema::find(&self.path_of(key))?;
        let Kind::CountOr(_, _, word) = option.kind else { return None };
        match self.get(key).map(Spanned::get_ref) {
            None | Some(DeValue::String(_)) => self.parsed(key, |text| {
                let fault = || Fault::new(format!("expected {}", option.kind));
                if text == word { Ok(None) } else { Err(fault().help(did_you_mean(nearest(text, [word])))) }
            }),
            Some(_) => self.count(key).map(|count| Spanned::new(count.span(), Some(count.into_inner()))),
        }
    }

    /// A number of bytes within the range that the schema gives.
    pub(in crate::config) fn size(&self, key: &str) -> Option<usize> {
        let size = self.read(key, |option, value| {
            let DeValue::String(text) = value.get_ref() else {
                self.mismatch(key, &option.kind.to_string(), value);
                return None;
            };
            let size = self.parse(key, value.span(), text, units::size)?;
            let in_range =
                Some(size).filter(|size| matches!(option.kind, Kind::Size(min, max) if (min..=max).contains(size)));
            self.within_range(key, option, value.span(), in_range.and_then(|size| usize::try_from(size).ok()))
        });
        size.map(Spanned::into_inner)
    }

    /// A number of bytes within the range that the schema gives, or the word for no bound, which is `u64::MAX`.
    pub(in crate::config) fn size_or(&self, key: &str) -> Option<u64> {
        let Kind::SizeOr(min, max, word) = schema::find(&self.path_of(key))?.kind else { return None };
        let size = self.read(key, |option, value| {
            let DeValue::String(text) = value.get_ref() else {
                self.mismatch(key, &option.kind.to_string(), value);
                return None;
            };
            let parse = |text: &str| match units::size(text) {
                _ if text == word => Ok(u64::MAX),
                Err(fault) if nearest(text, [word]).is_some() => Err(fault.help(did_you_mean(Some(word)))),
                read => read,
            };
            let size = self.parse(key, value.span(), text, parse)?;
            let in_range = Some(size).filter(|size| (min..=max).contains(size) || *size == u64::MAX);
            self.within_range(key, option, value.span(), in_range)
        });
        size.map(Spanned::into_inner)
    }

    fn within_range<T>(&self, key: &str, option: &Opt, span: Range<usize>, read: Option<T>) -> Option<T> {
        if read.is_none() {
            self.fault(key, span, Fault::new(format!("expected {}", option.kind)));
        }
        read
    }

    /// `true` or `false`.
    pub(in crate::config) fn switch(&self, key: &str) -> Option<bool> {
        let read = self.read(key, |option, value| {
            if let DeValue::Boolean(switch) = value.get_ref() {
                return Some(*switch);
            }
            self.mismatch(key, &option.kind.to_string(), value);
            None
        });
        read.map(Spanned::into_inner)
    }

    /// One of some words.
    pub(in crate::config) fn choice<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.parsed(key, units::one_of(words)).map(Spanned::into_inner)
    }

    /// A duration above zero.
    pub(in crate::config) fn duration(&self, key: &str) -> Option<Duration> {
        self.parsed(key, time_units::duration).map(Spanned::into_inner)
    }

    /// A duration within the range that the schema gives.
    pub(in crate::config) fn duration_in(&self, key: &str) -> Option<Duration> {
        let option = schema::find(&self.path_of(key))?;
        let Kind::DurationIn(min, max) = option.kind else { return None };
        let duration = self.parsed(key, time_units::duration)?;
        let bounds = Duration::from_millis(min)..=Duration::from_millis(max);
        let in_range = Some(*duration.get_ref()).filter(|duration| bounds.contains(duration));
        self.within_range(key, option, duration.span(), in_range)
    }

    /// A duration above zero, or the word for none.
    #[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
    pub(in crate::config) fn duration_or(&self, key: &str) -> Option<Option<Duration>> {
        let Kind::DurationOr(word) = schema::find(&self.path_of(key))?.kind else { return None };
        let parse = |text: &str| match time_units::duration(text) {
            _ if text == word => Ok(None),
            Err(fault) if nearest(text, [word]).is_some() => Err(fault.help(did_you_mean(Some(word)))),
            read => read.map(Some),
        };
        self.parsed(key, parse).map(Spanned::into_inner)
    }

    /// Names and strings, in the order they are written.
    pub(in crate::config) fn pairs(&self, key: &str) -> Vec<(Located<String>, Located<String>)> {
        let pairs = self.read(key, |option, value| {
            let DeValue::Table(entries) = value.get_ref() else {
                self.mismatch(key, &option.kind.to_string(), value);
                return None;
            };
            let mut pairs = Vec::new();
            for (name, value) in entries {
                let DeValue::String(text) = value.get_ref() else {
                    self.mismatch(key, &option.kind.to_string(), value);
                    continue;
                };
                let name = Spanned::new(name.span(), name.get_ref().clone().into_owned());
                pairs.push((name, Spanned::new(value.span(), text.clone().into_owned())));
            }
            pairs.sort_by_key(|(name, _)| name.span().start);
            Some(pairs)
        });
        pairs.map(Spanned::into_inner).unwrap_or_default()
    }
}
