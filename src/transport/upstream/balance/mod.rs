//! Which endpoint gets a request: `choose` picks among candidates, `ejection` takes failing endpoints out.

pub(crate) mod choose;
pub(crate) mod ejection;
