//! The admin listener as the configuration has it: what a reload changes of it, and its sockets with TLS or without.

use std::future::ready;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_rustls::TlsAcceptor;

use crate::admin::{self, Accept, Access, Admin, Override, Overrides};
use crate::net::tls::ServerTls;

/// What the admin listener goes by now.
pub(super) struct Operators {
    pub(super) access: Arc<ArcSwap<Access>>,
    /// What was set at run time, and where changes of it go.
    pub(super) overrides: Overrides,
    tls: ArcSwapOption<ServerTls>,
}

impl Operators {
    pub(super) fn new(access: Access, tls: Option<ServerTls>, overrides: Overrides) -> Self {
        Self { access: Arc::new(ArcSwap::from_pointee(access)), overrides, tls: ArcSwapOption::from(tls.map(Arc::new)) }
    }

    /// Takes over what is new. Whether there is TLS at all stays as it was.
    pub(super) fn reload(&self, access: Access, tls: Option<ServerTls>, set: Vec<Override>) {
        self.access.store(Arc::new(access));
        self.overrides.set.store(Arc::new(set));
        if let (Some(tls), true) = (tls, self.tls.load().is_some()) {
            self.tls.store(Some(Arc::new(tls)));
        }
    }

    /// Serves for as long as it is polled.
    pub(super) async fn serve<L: Accept>(self: Arc<Self>, listener: L, admin: Admin) {
        if self.tls.load().is_none() {
            return admin::serve(listener, admin, |stream| ready(Ok(stream))).await;
        }
        let shake_hands = move |stream: L::Stream| {
            let config = self.tls.load().as_ref().map(|tls| tls.http1_config());
            async move {
                match config {
                    Some(config) => TlsAcceptor::from(config).accept(stream).await,
                    None => Err(std::io::ErrorKind::NotConnected.into()),
                }
            }
        };
        admin::serve(listener, admin, shake_hands).await;
    }
}
