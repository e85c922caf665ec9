//! HPACK: the compression of header fields (RFC 7541).
//!
//! The decoder is bounded by its table and by the block that it is given; what it yields is bounded by the caller. The
//! encoder has no state: it uses the static table only, so that an idle connection needs no memory for it.

mod decode;
mod encode;
mod huffman;
mod table;

pub(super) use decode::Decoder;
pub(super) use encode::{NO_TABLE, field, status};
