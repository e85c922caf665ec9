//! The places of the numbers in answers of services of language models.

/// A quantity: its name, its pointers, and those of the part that counts as another quantity.
pub(super) type PresetQuantity = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The published form of a service's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Chat completions of `OpenAI`. A stream has `usage` in its last chunk, if the request asks for it by
    /// `stream_options.include_usage`; it is null in all others.
    OpenaiChat,
    /// Responses of `OpenAI`. A stream has `usage` in `response.completed`.
    OpenaiResponses,
    /// Messages of Anthropic. A stream has `usage` in `message_start`, and totals in `message_delta`. `input_tokens`
    /// excludes those of the cache.
    Anthropic,
    /// `generateContent` of Gemini, and its stream. `promptTokenCount` includes those of the cache.
    Gemini,
}

/// The names of quantities.
pub(super) const INPUT: &str = "input";
const OUTPUT: &str = "output";
const CACHE_READ: &str = "cache_read";
const CACHE_WRITE: &str = "cache_write";

impl Preset {
    /// The quantities: a name, the pointers of which the first with a number counts, and those of a number that it
    /// includes and that counts on its own. Quantities of equal names are added.
    pub(super) const fn quantities(self) -> &'static [PresetQuantity] {
        match self {
            Self::OpenaiChat => &[
                (INPUT, &["/usage/prompt_tokens"], &["/usage/prompt_tokens_details/cached_tokens"]),
                (CACHE_READ, &["/usage/prompt_tokens_details/cached_tokens"], &[]),
                (OUTPUT, &["/usage/completion_tokens"], &[]),
            ],
            Self::OpenaiResponses => &[
                (
                    INPUT,
                    &["/response/usage/input_tokens", "/usage/input_tokens"],
                    &[
                        "/response/usage/input_tokens_details/cached_tokens",
                        "/usage/input_tokens_details/cached_tokens",
                    ],
                ),
                (
                    CACHE_READ,
                    &[
                        "/response/usage/input_tokens_details/cached_tokens",
                        "/usage/input_tokens_details/cached_tokens",
                    ],
                    &[],
                ),
                (OUTPUT, &["/response/usage/output_tokens", "/usage/output_tokens"], &[]),
            ],
            Self::Anthropic => &[
                (INPUT, &["/usage/input_tokens", "/message/usage/input_tokens"], &[]),
                (
                    CACHE_WRITE,
                    &["/usage/cache_creation_input_tokens", "/message/usage/cache_creation_input_tokens"],
                    &[],
                ),
                (CACHE_READ, &["/usage/cache_read_input_tokens", "/message/usage/cache_read_input_tokens"], &[]),
                (OUTPUT, &["/usage/output_tokens", "/message/usage/output_tokens"], &[]),
            ],
            Self::Gemini => &[
                (INPUT, &["/usageMetadata/promptTokenCount"], &["/usageMetadata/cachedContentTokenCount"]),
                (INPUT, &["/usageMetadata/toolUsePromptTokenCount"], &[]),
                (CACHE_READ, &["/usageMetadata/cachedContentTokenCount"], &[]),
                (OUTPUT, &["/usageMetadata/candidatesTokenCount"], &[]),
                (OUTPUT, &["/usageMetadata/thoughtsTokenCount"], &[]),
            ],
        }
    }

    /// The pointers to the name of the model, of which the first with a text counts.
    pub(super) const fn model(self) -> &'static [&'static str] {
        match self {
            Self::OpenaiChat => &["/model"],
            Self::OpenaiResponses => &["/response/model", "/model"],
            Self::Anthropic => &["/model", "/message/model"],
            Self::Gemini => &["/modelVersion"],
        }
    }

    /// The names of the quantities, in the order of errors.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let quantities = self.quantities();
        let is_first = move |&at: &usize| quantities[..at].iter().all(|(name, ..)| *name != quantities[at].0);
        (0..quantities.len()).filter(is_first).map(move |at| quantities[at].0)
    }

    /// The quantity of which each event of a stream brings about one.
    pub(super) const STREAMED: &str = OUTPUT;
}
