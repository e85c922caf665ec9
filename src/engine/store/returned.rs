//! The effect of a refund, as other replicas hear of it.

use crate::base::time::Timestamp;

/// A charge that was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// The units that came back here, rounded.
    pub units: u64,
    /// The units of the charge; 0 if nothing came back and nobody needs to hear of it.
    pub charged: u64,
    /// The part of the charge, in nanoseconds, that comes back only less the time since the charge that no other refund has
    /// lost. All other units come back whole.
    pub risk_ns: u64,
    /// The instant of the charge.
    pub at: Timestamp,
}

impl Returned {
    /// Units that came back whole at `now`.
    pub fn whole(units: u64, now: Timestamp) -> Self {
        Self { units, charged: units, risk_ns: 0, at: now }
    }

    /// This charge and `other`, as one charge at the earlier instant.
    pub fn with(self, other: &Self) -> Self {
        let Self { units, charged, risk_ns, at } = *other;
        let at = if self.charged == 0 { at } else { self.at.min(at) };
        Self {
            units: self.units.saturating_add(units),
            charged: self.charged.saturating_add(charged),
            risk_ns: self.risk_ns.saturating_add(risk_ns),
            at,
        }
    }

    /// So many such charges.
    pub fn times(self, count: u64) -> Self {
        let Self { units, charged, risk_ns, at } = self;
        let times = |number: u64| number.saturating_mul(count);
        Self { units: times(units), charged: times(charged), risk_ns: times(risk_ns), at }
    }
}
