//! The atomics and locks of tables, queues and outboxes: those of the standard library, or with the feature `loom` those
//! of the crate of that name, which tries all orders in which threads can see each other's writes.
//!
//! A test of that kind runs in `loom::model`; nothing else works with the feature.

#[cfg(not(feature = "loom"))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(feature = "loom")]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

/// So many values of zeroes.
#[cfg(not(feature = "loom"))]
pub(crate) fn zeroed<T: bytemuck::Zeroable>(len: usize) -> Box<[T]> {
    bytemuck::allocation::zeroed_slice_box(len)
}

/// So many values of zeroes.
#[cfg(feature = "loom")]
pub(crate) fn zeroed<T: Default>(len: usize) -> Box<[T]> {
    std::iter::repeat_with(T::default).take(len).collect()
}
