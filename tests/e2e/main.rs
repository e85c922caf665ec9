//! Weir as its users meet it: the real binary, real sockets, real traffic. Also its parts with real servers, and its packages.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
// Tests measure what Weir does from outside, and read whole numbers from its metrics.
#![allow(clippy::disallowed_methods, clippy::float_cmp)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

mod ops;
mod support;

mod candidates;
mod cli;
mod demo;

mod forward;
mod forwarded;
mod streaming;

mod balance;
mod behind_h2;
mod endpoint_orders;
mod name_resolution;
mod ntlm;
mod outages;
mod paths;
mod pool;
mod queue;
mod routes;
mod upstream_tls;
mod upstreams;
mod weir_top;

mod bans_and_delays;
mod body_keys;
mod body_units;
mod bounds;
mod checks;
mod clients;
mod comparison;
mod etcd_leases;
mod failures;
mod fair_share;
mod fleet;
mod fleet_examples;
mod fleet_members;
mod fleet_secret;
mod fleet_stream;
mod grpc;
mod h2;
mod hold;
mod truncated_responses;

mod access;
mod access_log;
mod acme;
mod adapted_rates;
mod adaptive;
mod api_keys;
mod identity;
mod idle;
mod imports;
mod limits;
mod networks;
mod pairs;
mod priorities;
mod ramps;
mod required_identities;

mod attacks;
mod limit_responses;

mod admin;
mod admin_bans;
mod admin_commands;
mod admin_config;
mod admin_history;
mod admin_keys;
mod admin_page;
mod admin_roles;
mod admin_tap;
mod api;
mod command_clients;
mod cut_streams;
mod drain;
mod explanations;
mod jwks;
mod limiter;
mod logs;
mod metrics;
mod monitoring;
mod overrides;
mod own_limits;
mod plans;
mod proxy_protocol;
mod recipes;
mod redis;
mod refusals;
mod reliability;
mod reload;
mod reload_by_hand;
mod remote_config;
mod request_bodies;
mod settle;
mod signals;
mod snapshot;
mod stale;
mod store_outages;
mod stream_ends;
mod stream_usage;
mod systemd;
mod takeover;

mod tls;
mod traces;
mod unix;
mod upgrades;

mod deploy;
mod package;
mod redis_script;
mod redis_store;
