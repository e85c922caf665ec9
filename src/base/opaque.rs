//! `Debug` that shows no value.

/// Implements `Debug` by the name of the type, for secrets and for values without a useful text.
macro_rules! opaque_debug {
    ($($name:ident),+) => {$(
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )+};
}

pub(crate) use opaque_debug;
