//! What is written for each row of the table of algorithms.

/// The algorithms: number, name in the configuration, variant, and state. Their numbers are in stored bytes and in the
/// calls of stores, and are never reused.
macro_rules! algorithms {
    ($($(#[$doc:meta])* $number:literal $name:literal $Name:ident($State:ty),)*) => {
        /// An algorithm without its rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum AlgorithmName { $($(#[$doc])* $Name,)* }

        impl AlgorithmName {
            /// All algorithms, with their names in the configuration.
            pub const ALL: [(&'static str, Self); [$($number),*].len()] = [$(($name, Self::$Name),)*];
        }

        /// The number of [`Algorithm::Several`].
        const SEVERAL: u8 = 8;

        closed_set! {
            ($) $($(#[$doc])* $number $name $Name($State),)*
            /// Several rules at once, see [`windows`](super::windows); at most [`WINDOWS_MAX`](super::windows::WINDOWS_MAX).
            8 "several" Several(Several),
            /// A token bucket with `share_by`, see [`fair_share`].
            9 "fair_share" FairShare(fair_share::State),
        }
    };
}

macro_rules! closed_set {
    (($d:tt) $($(#[$doc:meta])* $number:literal $name:literal $Name:ident($State:ty),)*) => {
        /// The algorithm of a limit, with its rule.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Algorithm { $($(#[$doc])* $Name(<$State as State>::Rule),)* }

        /// The state of one key under any algorithm.
        #[derive(Clone, Debug)]
        pub enum AnyState { $(#[doc = concat!("Of [`Algorithm::", stringify!($Name), "`].")] $Name($State),)* }

        /// The proof of a charge under any algorithm.
        #[derive(Clone, Debug)]
        pub enum AnyReceipt {
            $(#[doc = concat!("Of [`Algorithm::", stringify!($Name), "`].")] $Name(<$State as State>::Receipt),)*
        }

        impl Receipt for AnyReceipt {
            fn part(&self, units: u64, grown: u64) -> (Self, u64) {
                match self {
                    $(Self::$Name(receipt) => {
                        let (part, rest) = receipt.part(units, grown);
                        (Self::$Name(part), rest)
                    })*
                }
            }
        }

        /// Evaluates `$do` with a state and a rule of the same algorithm; `$other` if the algorithms differ.
        macro_rules! matched {
            ($d state:expr, $d rule:expr, |$d one:ident, $d numbers:ident| $d do:expr, else $d other:expr) => {
                match ($d state, $d rule) {
                    $((AnyState::$Name($d one), Algorithm::$Name($d numbers)) => $d do,)*
                    _ => $d other,
                }
            };
        }

        impl Algorithm {
            /// Its name in the configuration.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$Name(_) => $name,)* }
            }

            /// The number of the algorithm.
            pub fn number(&self) -> u8 {
                match self { $(Self::$Name(_) => $number,)* }
            }

            /// As [`Rule::scaled`].
            ///
            /// # Errors
            /// If the algorithm cannot compute with the numbers.
            pub fn scaled(&self, scale: Scale) -> Result<Self, QuotaError> {
                Ok(match self { $(Self::$Name(rule) => Self::$Name(rule.scaled(scale)?),)* })
            }

            /// As [`Rule::to_portable`].
            ///
            /// # Errors
            /// If there is no portable form.
            pub fn to_portable(&self, max_debt: u64) -> Result<Self, Unportable> {
                Ok(match self { $(Self::$Name(rule) => Self::$Name(rule.to_portable(max_debt)?),)* })
            }

            /// As [`Rule::is_within`].
            pub fn is_within(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$Name(own), Self::$Name(other)) => own.is_within(other),)*
                    (own, Self::Several(others)) => others.iter().all(|other| own.is_within(other)),
                    (Self::Several(own), other) => own.iter().any(|own| own.is_within(other)),
                    _ => false,
                }
            }

            /// How many of `numbers` are those of the state under a rule of one rate after a charge, and the numbers by which
            /// a store undoes the charge.
            pub fn proof(&self, numbers: &[u64], charged: Charged) -> Option<(usize, [u64; 5])> {
                match self { $(Self::$Name(rule) => <$State>::proof(rule, numbers, charged),)* }
            }
        }

        /// Its rule, whatever the algorithm is.
        impl Deref for Algorithm {
            type Target = dyn Rule + 'static;

            fn deref(&self) -> &(dyn Rule + 'static) {
                match self { $(Self::$Name(rule) => rule,)* }
            }
        }

        impl AnyState {
            fn new(rule: &Algorithm) -> Self {
                match rule { $(Algorithm::$Name(rule) => Self::$Name(State::fresh(rule)),)* }
            }

            fn idle_from(&self) -> Timestamp {
                match self { $(Self::$Name(state) => state.idle_at(),)* }
            }

            fn receipt_of(&self, cost: u64, now: Timestamp) -> AnyReceipt {
                match self { $(Self::$Name(state) => AnyReceipt::$Name(state.receipt(cost, now)),)* }
            }

            /// `None` if not all three are of one algorithm.
            fn give_back(&mut self, rule: &Algorithm, receipt: &AnyReceipt, now: Timestamp) -> Option<u64> {
                match (self, rule, receipt) {
                    $((Self::$Name(state), Algorithm::$Name(rule), AnyReceipt::$Name(receipt)) => {
                        Some(state.refund(rule, receipt, now))
                    })*
                    _ => None,
                }
            }

            fn import_rate(rule: &Algorithm, numbers: &mut dyn Iterator<Item = u64>, now: Timestamp) -> Option<Self> {
                Some(match rule { $(Algorithm::$Name(rule) => Self::$Name(Portable::import(rule, numbers, now)?),)* })
            }
        }

        /// The number of the algorithm, and the bytes of the state.
        impl Packed for AnyState {
            fn pack(&self, bytes: &mut Vec<u8>) {
                match self { $(Self::$Name(state) => { bytes.push($number); state.pack(bytes); })* }
            }

            fn unpack(from: &mut Unpacker<'_>) -> Option<Self> {
                Some(match from.u8()? { $($number => Self::$Name(Packed::unpack(from)?),)* _ => return None })
            }
        }
    };
}

pub(super) use {algorithms, closed_set};
