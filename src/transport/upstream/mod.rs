//! The client side of the proxy: connections to the endpoints of each service, and one exchange on one of them.
//!
//! Reading order: `settings` (one configured service), `state` (what all workers know of its endpoints), `endpoints` and
//! `acquire` (one worker chooses an endpoint and gets a connection), `pool`, `h2`, `exchange` (request out, response back).
//! `health` and `dns` run on the control runtime, and `status` shows operators the result.
//!
//! An HTTP/1 connection has no task of its own. The exchange that has checked it out polls it until the response head has
//! arrived, then the response body polls it. That saves two passes through the scheduler for each request. Nothing polls
//! an idle connection; the next checkout notices that the service has closed it.

mod availability;
mod directory;
mod observations;
pub(crate) mod operate;
pub(crate) mod orders;
pub mod settings;
mod state;
mod status;

mod acquire;
mod endpoints;

mod balance;
mod pool;

mod h2;

mod exchange;
pub(crate) mod location;

mod dns;
mod health;

pub use balance::ejection::Eject;
pub(crate) use directory::{Directory, InForce};
pub(crate) use dns::lookup::LookupAnswer;
pub(crate) use dns::resolve::{lookup_host, resolve_names};
pub(crate) use endpoints::{Endpoints, WorkerResources};
pub(crate) use exchange::head::{FieldWriter, RequestHead};
pub(crate) use exchange::outcome::{ExchangeError, ResponseEvent};
pub(crate) use exchange::run::Exchange;
pub(crate) use exchange::upload::{BodyFault, RequestTraits, Source, spend};
pub(crate) use health::check_health;
pub(crate) use observations::Figures;
pub use pool::ceiling::Ceiling;
pub(crate) use pool::checkout::{Checkout, Requirements, UpgradedConnection};
pub(crate) use pool::endpoint_pool::SWEEP_EVERY;
pub(crate) use pool::pin::ConnectionPin;
pub(crate) use pool::queue::WorkerNotify;
pub(crate) use pool::usage::WorkerRequests;
pub(crate) use state::UpstreamState;
pub(crate) use status::{EndpointStatus, UpstreamStatus};
