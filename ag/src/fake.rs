//! A stand-in for the journal's transactions, until they are here.
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use base::Daddr;
use format::{Damage, Place};

use crate::btree::page;

#[derive(Debug)]
pub enum Error {
    Damage { place: Place, damage: Damage },
    NoSpace(&'static str),
}
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(usize);

#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub daddr: Daddr,
    pub bytes: u32,
}
#[derive(Clone, Copy, Debug)]
pub enum Rank {
    Buffer,
}

#[derive(Debug)]
pub struct Edit {
    data: Vec<u8>,
    verified: bool,
    pub logged: u64,
    pub stale: bool,
}
impl page::Edit for Edit {
    fn bytes(&self) -> &[u8] {
        &self.data
    }
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        for chunk in range.start / 128..range.end.div_ceil(128) {
            self.logged |= 1 << chunk.min(63);
        }
        &mut self.data[range]
    }
}

#[derive(Debug, Default)]
pub struct Transaction {
    pub buffers: Vec<Edit>,
    pub at: HashMap<u64, usize>,
}

impl Transaction {
    pub fn read<V: FnOnce(&[u8]) -> Result<(), Damage>>(
        &mut self,
        at: Extent,
        _: Rank,
        verify: V,
    ) -> Result<BufferId, Error> {
        let index = *self.at.get(&at.daddr.get()).expect("a block of the tree");
        let edit = &mut self.buffers[index];
        assert!(!edit.stale);
        if !edit.verified {
            verify(&edit.data).map_err(|damage| Error::Damage { place: Place::daddr(at.daddr), damage })?;
            edit.verified = true;
        }
        Ok(BufferId(index))
    }
    pub fn fresh(&mut self, at: Extent, _: Rank) -> Result<BufferId, Error> {
        self.buffers.push(Edit { data: vec![0; at.bytes as usize], verified: true, logged: 0, stale: false });
        self.at.insert(at.daddr.get(), self.buffers.len() - 1);
        Ok(BufferId(self.buffers.len() - 1))
    }
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        &self.buffers[id.0].data
    }
    pub fn bytes_mut(&mut self, id: BufferId, range: Range<usize>) -> &mut [u8] {
        page::Edit::bytes_mut(&mut self.buffers[id.0], range)
    }
    pub fn split_mut(&mut self, a: BufferId, b: BufferId) -> (&mut Edit, &mut Edit) {
        let [a, b] = self.buffers.get_disjoint_mut([a.0, b.0]).expect("two buffers");
        (a, b)
    }
    pub fn invalidate(&mut self, id: BufferId) {
        self.buffers[id.0].stale = true;
    }
}
