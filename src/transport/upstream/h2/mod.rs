//! HTTP/2 connections to an endpoint. All requests of one worker to it share them.

pub(crate) mod connection;
pub(crate) mod pending;
pub(crate) mod set;
