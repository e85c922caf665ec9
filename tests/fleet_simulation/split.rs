//! `split`: replicas that decide alone by an equal share, and tell each other nothing.

use weir::engine::limit::{Algorithm, OnFull};
use weir::engine::store::Table;

use super::streams::admit;
use super::world::{Strategy, World, key};

pub struct Split {
    share: Algorithm,
    tables: Vec<Table>,
}

impl Split {
    pub fn new(rule: &Algorithm, replicas: usize) -> Self {
        let share = rule.share(replicas as u64).unwrap();
        let tables = (0..replicas).map(|_| Table::new(&share, 1000, OnFull::Shared)).collect();
        Self { share, tables }
    }
}

impl Strategy for Split {
    type Message = ();

    fn request(&mut self, node: usize, number: usize, world: &mut World<Self>) {
        if admit(&self.tables[node], &self.share, key(number), world.clock(node)) {
            world.admit(number);
        }
    }

    fn receive(&mut self, _: usize, _: usize, (): (), _: &mut World<Self>) {}

    fn timer(&mut self, _: usize, _: u64, _: &mut World<Self>) {}

    fn start(&mut self, node: usize, _: &mut World<Self>) {
        self.tables[node] = Table::new(&self.share, 1000, OnFull::Shared);
    }
}
