//! `limit.settle` by numbers of the response body: pointers and presets, their weights, and prices of models.

use toml::Spanned;
use toml::de::DeValue;

use crate::config::reader::{Fault, Table};
use crate::engine::units::{BodyUnits, Pointer, Preset, Tariff, Weight};

/// Reads `units`: pointers to numbers, and their weights.
pub(super) fn weighted_pointers(table: &Table<'_>) -> Option<Vec<(Pointer, Weight)>> {
    let Some(value) = table.get("units") else {
        let fault = Fault::new("is missing").help("write it like `units = { \"/usage/input_tokens\" = 1 }`");
        table.fault_at("units", fault.absence());
        return None;
    };
    let pointer = |name: &str| Pointer::parse(name).map_err(Fault::from);
    let pointers = weights(table, "units", value, pointer)?;
    if pointers.is_empty() {
        table.fault_at("units", "must not be empty");
        return None;
    }
    Some(pointers)
}

/// Reads `units` or `price`, which have the names of quantities of `preset`.
pub(super) fn of_preset(table: &Table<'_>, preset: Preset, default: Option<u64>) -> Option<BodyUnits> {
    let quantity = |name: &str| {
        let expected = || preset.names().collect::<Vec<_>>().join("`, `");
        preset
            .names()
            .find(|known| *known == name)
            .ok_or_else(|| Fault::new(format!("expected one of `{}`", expected())))
    };
    let units = match table.get("units") {
        Some(value) => weights(table, "units", value, quantity)?,
        None => Vec::new(),
    };
    let weight_of = |weights: &[(&str, Weight)], name: &str| {
        weights.iter().find(|(known, _)| *known == name).map(|(_, weight)| *weight)
    };
    let Some(prices) = table.get("price") else {
        let weight = |name: &str| weight_of(&units, name).unwrap_or(Weight::ONE);
        return Some(BodyUnits::of_preset(preset, weight, Vec::new(), default));
    };
    table.fault_if_present("units", "is the same for all models: give `units` or `price`");
    let Some(models) = prices.get_ref().as_table().filter(|models| !models.is_empty()) else {
        table.fault_at("price", "expected a table of models and prices");
        return None;
    };
    let mut tariffs = Vec::new();
    for (model, value) in models {
        let price = weights(table, "price", value, quantity);
        if price.as_ref().is_some_and(|price| ["input", "output"].iter().any(|name| weight_of(price, name).is_none())) {
            table.fault("price", value.span(), Fault::new("needs `input` and `output`").absence());
        }
        tariffs.push(price.map(|price| Tariff::new(preset, model.get_ref(), |name| weight_of(&price, name))));
    }
    let tariffs = tariffs.into_iter().collect::<Option<Vec<_>>>()?;
    Some(BodyUnits::of_preset(preset, |_| Weight::ONE, tariffs, default))
}

/// Reads a table of names and weights.
fn weights<N>(
    table: &Table<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    name: impl Fn(&str) -> Result<N, Fault>,
) -> Option<Vec<(N, Weight)>> {
    let Some(entries) = value.get_ref().as_table() else {
        table.fault(key, value.span(), "expected a table of names and weights");
        return None;
    };
    let mut read = Vec::new();
    for (text, value) in entries {
        let name = name(text.get_ref()).map_err(|fault| table.fault(key, text.span(), fault)).ok();
        let weight = match value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => Weight::parse(number.as_str()),
            DeValue::Float(number) => Weight::parse(number.as_str()),
            DeValue::String(text) => Weight::parse(text),
            _ => Weight::parse(""),
        };
        let weight = weight.map_err(|error| table.fault(key, value.span(), error)).ok();
        read.push(name.zip(weight));
    }
    read.into_iter().collect()
}
