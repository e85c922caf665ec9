//! What the requests of one worker go by: the newest policy and settings, and the worker's upstream pool.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::buffer::Buffers;
use super::settings::{Settings, Timeouts};
use super::upstream::Pool;
use crate::gate::Live;
use crate::telemetry::{AccessLog, Counter};

/// What a reload replaces, for all workers at once.
#[derive(Debug)]
pub struct Current {
    /// Policy and the state of its limits.
    pub live: Live,
    /// The data path's settings.
    pub settings: Settings,
    /// Which requests are logged.
    pub access_log: AccessLog,
}

/// A worker's view of [`Current`]. A request keeps the one it began with.
#[derive(Debug)]
pub(super) struct View {
    pub(super) current: Arc<Current>,
    pub(super) timeouts: Rc<Timeouts>,
    pub(super) pool: Rc<Pool>,
}

/// Keeps a worker's view up to date. The common case, nothing new, costs one atomic load and no shared write.
#[derive(Debug)]
pub(super) struct Views {
    newest: Arc<ArcSwap<Current>>,
    broken_answers: Counter,
    buffers: Rc<Buffers>,
    view: RefCell<Rc<View>>,
}

impl Views {
    pub(super) fn new(newest: Arc<ArcSwap<Current>>, broken_answers: Counter, buffers: Rc<Buffers>) -> Self {
        let view = RefCell::new(Rc::new(View::new(newest.load_full(), None, &broken_answers, &buffers)));
        Self { newest, broken_answers, buffers, view }
    }

    /// The view as of now.
    pub(super) fn view(&self) -> Rc<View> {
        let mut view = self.view.borrow_mut();
        let newest = self.newest.load();
        if !Arc::ptr_eq(&newest, &view.current) {
            let next = Rc::new(View::new(Arc::clone(&newest), Some(&view), &self.broken_answers, &self.buffers));
            if !Rc::ptr_eq(&next.pool, &view.pool) {
                view.pool.close();
            }
            *view = next;
        }
        Rc::clone(&view)
    }
}

impl View {
    /// The pool goes on if the upstream is the same.
    fn new(current: Arc<Current>, before: Option<&View>, broken_answers: &Counter, buffers: &Rc<Buffers>) -> Self {
        let Settings { upstream, timeouts, .. } = &current.settings;
        let is_same = |before: &&View| {
            let settings = &before.current.settings;
            settings.upstream == *upstream && settings.timeouts.connect == timeouts.connect
        };
        let pool = match before.filter(is_same) {
            Some(before) => Rc::clone(&before.pool),
            None => Rc::new(Pool::new(upstream.clone(), timeouts.connect, broken_answers.clone(), Rc::clone(buffers))),
        };
        Self { timeouts: Rc::new(timeouts.clone()), pool, current }
    }
}
