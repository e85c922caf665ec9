//! Limits that several Weirs share through Redis.

mod servers;
