//! The rule by which the numbers of a body become units.

use memchr::{memchr_iter, memmem};

use super::number::{Number, Sum, Weight};
use super::pointers::{Pointer, PointerTree, Slot};
use super::preset::{INPUT, Preset};
use super::reading::{Reading, Unreadable};
use super::scanner::{Scanner, Value};

/// The units of a response, as its body names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyUnits {
    pub(super) tree: PointerTree,
    quantities: Vec<Quantity>,
    weights: Weights,
    /// The quantity of which each event of a stream brings about one.
    streamed: Option<usize>,
    /// A name that each document with a number has.
    name: Option<Needle>,
    /// The units of a body without a number that can be read; `None` if the charge stays.
    pub default: Option<u64>,
}

/// A number of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quantity {
    /// The places of the number, of which the first with one counts.
    at: Vec<Slot>,
    /// The places of the part that counts as another quantity.
    without: Vec<Slot>,
}

/// The weights of the quantities.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Weights {
    Same(Vec<Weight>),
    /// Those of the model whose name stands at the first of the slots that has a text.
    ByModel(Vec<Slot>, Vec<Tariff>),
}

/// The weights of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tariff {
    /// The name of the model, or its start before `*`.
    model: Box<str>,
    weights: Vec<Weight>,
}

impl Tariff {
    /// The tariff of a model. `weight` has the weights of the quantities; without one a quantity counts as input.
    pub fn new(preset: Preset, model: &str, weight: impl Fn(&str) -> Option<Weight>) -> Self {
        let weights =
            preset.quantities().iter().map(|(name, ..)| weight(name).or_else(|| weight(INPUT)).unwrap_or(Weight::ONE));
        Self { model: model.into(), weights: weights.collect() }
    }

    /// How exactly the tariff is that of a model: the length of the name, and whether it is the whole name.
    fn fits(&self, model: &[u8]) -> Option<(usize, bool)> {
        let (start, is_whole) = self.model.strip_suffix('*').map_or((&*self.model, true), |start| (start, false));
        let fits = if is_whole { model == start.as_bytes() } else { model.starts_with(start.as_bytes()) };
        fits.then_some((start.len(), is_whole))
    }
}

/// Pointers without repetition, whose positions are their slots.
#[derive(Default)]
struct Slots(Vec<Pointer>);

impl Slots {
    fn slot(&mut self, pointer: Pointer) -> Slot {
        self.0.iter().position(|known| *known == pointer).unwrap_or_else(|| {
            self.0.push(pointer);
            self.0.len() - 1
        })
    }

    /// The slots of pointers of a preset, which are all valid.
    fn all(&mut self, texts: &[&str]) -> Vec<Slot> {
        texts.iter().filter_map(|text| Pointer::parse(text).ok()).map(|pointer| self.slot(pointer)).collect()
    }

    /// A name that all pointers of `quantities` have.
    fn common_name(&self, quantities: &[Quantity]) -> Option<Needle> {
        let slots = quantities.iter().flat_map(|quantity| quantity.at.iter().chain(&quantity.without));
        let name = Pointer::common_name(&slots.map(|slot| &self.0[*slot]).collect::<Vec<_>>())?;
        Some(Needle(memmem::Finder::new(&format!("\"{name}\"")).into_owned()))
    }
}

/// A name of JSON to search for, with its quotation marks.
#[derive(Clone, Debug)]
struct Needle(memmem::Finder<'static>);

impl PartialEq for Needle {
    fn eq(&self, other: &Self) -> bool {
        self.0.needle() == other.0.needle()
    }
}

impl Eq for Needle {}

impl BodyUnits {
    /// The weighted sum of the numbers at `pointers`.
    pub fn of_pointers(pointers: impl IntoIterator<Item = (Pointer, Weight)>, default: Option<u64>) -> Self {
        let mut slots = Slots::default();
        let quantity = |(pointer, weight)| (Quantity { at: vec![slots.slot(pointer)], without: Vec::new() }, weight);
        let (quantities, weights): (Vec<_>, _) = pointers.into_iter().map(quantity).unzip();
        let tree = PointerTree::new(&slots.0);
        let name = slots.common_name(&quantities);
        Self { tree, quantities, weights: Weights::Same(weights), streamed: None, name, default }
    }

    /// The weighted sum of the numbers of a preset: by the tariff of the model, if there are any, or by `weight`.
    pub fn of_preset(
        preset: Preset,
        weight: impl Fn(&str) -> Weight,
        tariffs: Vec<Tariff>,
        default: Option<u64>,
    ) -> Self {
        let (mut slots, places) = (Slots::default(), preset.quantities());
        let quantities: Vec<_> =
            places.iter().map(|(_, at, without)| Quantity { at: slots.all(at), without: slots.all(without) }).collect();
        let weights = if tariffs.is_empty() {
            Weights::Same(places.iter().map(|(name, ..)| weight(name)).collect())
        } else {
            Weights::ByModel(slots.all(preset.model()), tariffs)
        };
        let streamed = places.iter().position(|(name, ..)| *name == Preset::STREAMED);
        let name = slots.common_name(&quantities);
        Self { tree: PointerTree::new(&slots.0), quantities, weights, streamed, name, default }
    }

    /// Whether the units are millionths of a US dollar.
    pub fn is_money(&self) -> bool {
        matches!(self.weights, Weights::ByModel(..))
    }

    /// The units of a response, for which `charged` units are charged. `None` if the charge stays.
    ///
    /// A stream that breaks off costs what it named, and about a unit of output for each event since. Another body costs
    /// what it named, or what is charged, if that is more. Without a number a body that breaks off costs what is charged,
    /// or as many units as it had events or the default has, if these are more.
    pub fn owed(&self, reading: &Reading, charged: u64) -> Option<u64> {
        match *reading {
            Reading { units: Some(units), is_whole: true, .. } => Some(units),
            Reading { units: Some(units), streamed: Some(streamed), .. } => Some(units.saturating_add(streamed)),
            Reading { units: Some(units), .. } => Some(units.max(charged)),
            Reading { is_whole: true, .. } if self.default.is_some() => self.default,
            Reading { streamed: Some(streamed @ 1..), .. } => {
                Some(streamed.max(charged).max(self.default.unwrap_or_default()))
            }
            _ => self.default.map(|default| default.max(charged)),
        }
    }

    /// Whether a model has a tariff, or needs none.
    pub fn has_tariff(&self, model: &[u8]) -> bool {
        match &self.weights {
            Weights::Same(_) => true,
            Weights::ByModel(_, tariffs) => tariffs.iter().any(|tariff| tariff.fits(model).is_some()),
        }
    }

    /// Whether a whole document is an object without a number, and without a model that is not known: a search that costs
    /// far less than reading it. `false` if that is not certain.
    pub(super) fn has_no_number(&self, document: &[u8], scanner: &Scanner) -> bool {
        let (Some(Needle(name)), [b'{', .., b'}']) = (&self.name, document.trim_ascii()) else { return false };
        // An escape may be a letter of the name.
        let has_unicode_escape = || memchr_iter(b'\\', document).any(|at| document.get(at + 1) == Some(&b'u'));
        let is_null = |at: usize| {
            let value = document[at + name.needle().len()..].trim_ascii_start().strip_prefix(b":");
            value.is_some_and(|value| value.trim_ascii_start().starts_with(b"null"))
        };
        self.weights(scanner).is_some() && !has_unicode_escape() && name.find_iter(document).all(is_null)
    }

    /// The weights of the answer; `None` if its model has no tariff.
    fn weights(&self, scanner: &Scanner) -> Option<&[Weight]> {
        let (models, tariffs) = match &self.weights {
            Weights::Same(weights) => return Some(weights),
            Weights::ByModel(models, tariffs) => (models, tariffs),
        };
        let model = models.iter().find_map(|slot| match scanner.value(*slot) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        })?;
        let fitting = tariffs.iter().filter_map(|tariff| Some((tariff.fits(model)?, tariff)));
        fitting.max_by_key(|(fit, _)| *fit).map(|(_, tariff)| &*tariff.weights)
    }

    /// The sum of the newest numbers.
    ///
    /// # Errors
    /// The model has no tariff, a number cannot be read, or there is none.
    pub(super) fn sum(&self, scanner: &Scanner) -> Result<u64, Unreadable> {
        let (mut sum, mut has_number) = (Sum::default(), false);
        let weights = self.weights(scanner);
        for (at, quantity) in self.quantities.iter().enumerate() {
            let Some(whole) = number(scanner, &quantity.at)? else { continue };
            has_number = true;
            let part = number(scanner, &quantity.without)?.unwrap_or_default();
            sum.add(whole.minus(part), weights.ok_or(Unreadable::Model)?[at]);
        }
        if has_number { Ok(sum.units()) } else { Err(Unreadable::Absent) }
    }

    /// About the units that events without a number have brought; `None` if that is unknown.
    pub(super) fn streamed(&self, scanner: &Scanner) -> Option<u64> {
        let weight = self.weights(scanner)?[self.streamed?];
        let mut sum = Sum::default();
        sum.add(Number::from(scanner.since()), weight);
        Some(sum.units())
    }
}

/// The first number at these places.
fn number(scanner: &Scanner, slots: &[Slot]) -> Result<Option<Number>, Unreadable> {
    match slots.iter().find_map(|slot| scanner.value(*slot)) {
        Some(Value::Number(number)) => Ok(Some(*number)),
        Some(Value::Unreadable) => Err(Unreadable::Number),
        Some(Value::Text(_) | Value::Boolean(_) | Value::Absent) | None => Ok(None),
    }
}
