//! The AGI as a transaction holds it.

use std::mem::offset_of;

use base::lock::Rank;
use base::{AgIno, AgNumber};
use format::agi::{NULL_AG_INO, RawAgi};
use format::geometry::Geometry;
use format::ondisk::OnDisk;
use format::{Damage, Place};
use journal::engine::{BufferId, DiskExtent, Error, Transaction};

use crate::Groups;

/// A locked AGI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agi {
    /// The AG.
    pub ag: AgNumber,
    /// Its buffer in the transaction.
    pub id: BufferId,
}

/// The third sector of an AG.
const SECTOR: u32 = 2;

fn place_of(geometry: &Geometry, ag: AgNumber) -> DiskExtent {
    DiskExtent { daddr: geometry.ag_header_daddr(ag, SECTOR), bytes: geometry.sector_size }
}

impl Groups {
    /// Waits for the lock of an AGI, which mostly is where it was the last time.
    #[track_caller]
    pub(super) fn lock_agi(&self, tx: &mut Transaction, ag: AgNumber) -> Result<Agi, Error> {
        let known = self.get(ag).and_then(|group| group.inodes.header()).and_then(|buffer| tx.rejoin(buffer));
        if let Some(id) = known {
            return Ok(Agi { ag, id });
        }
        let agi = Agi::read(tx, self.geometry(), ag)?;
        if let Some(group) = self.get(ag) {
            group.inodes.set_header(tx.buffer_mut(agi.id).buffer());
        }
        Ok(agi)
    }
}

impl Agi {
    /// Waits for the AGI's lock.
    ///
    /// # Errors
    /// The AGI cannot be read, or is damaged.
    #[track_caller]
    pub fn read(tx: &mut Transaction, geometry: &Geometry, ag: AgNumber) -> Result<Self, Error> {
        let verify = |bytes: &[u8]| RawAgi::verify(bytes, geometry, ag).map(drop);
        let id = tx.read(place_of(geometry, ag), Rank::Agi(ag.get()), verify)?;
        Ok(Self { ag, id })
    }

    /// The same, unless somebody holds the lock.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn try_read(tx: &mut Transaction, geometry: &Geometry, ag: AgNumber) -> Result<Option<Self>, Error> {
        let verify = |bytes: &[u8]| RawAgi::verify(bytes, geometry, ag).map(drop);
        let id = tx.try_read(place_of(geometry, ag), Rank::Agi(ag.get()), verify)?;
        Ok(id.map(|id| Self { ag, id }))
    }

    /// Its fields as they are now.
    ///
    /// # Errors
    /// None for a buffer that [`read`](Self::read) gave: it is a sector long.
    pub fn raw<'a>(&self, tx: &'a Transaction) -> Result<&'a RawAgi, Error> {
        let bytes = tx.bytes(self.id);
        RawAgi::view(bytes).ok_or_else(|| self.damage(Damage::short("AGI", RawAgi::SIZE, bytes.len())))
    }

    /// The chunk that was allocated last, if it is known.
    pub fn newest(raw: &RawAgi) -> Option<AgIno> {
        Some(raw.newino.get()).filter(|newest| *newest != NULL_AG_INO).map(AgIno)
    }

    /// Changes the counts of inodes.
    pub(super) fn set_counts(&self, tx: &mut Transaction, count: u32, free: u32) {
        self.put(tx, offset_of!(RawAgi, count), count);
        self.put(tx, offset_of!(RawAgi, freecount), free);
    }

    /// Notes the chunk that was allocated last.
    pub(super) fn set_newest(&self, tx: &mut Transaction, start: AgIno) {
        self.put(tx, offset_of!(RawAgi, newino), start.get());
    }

    /// Stores one field of four bytes at its offset in [`RawAgi`], if it changes.
    pub(crate) fn put(&self, tx: &mut Transaction, at: usize, value: u32) {
        let (range, new) = (at..at + size_of::<u32>(), value.to_be_bytes());
        if tx.bytes(self.id).get(range.clone()) != Some(&new) {
            tx.bytes_mut(self.id, range).copy_from_slice(&new);
        }
    }

    /// Damage of this AG.
    #[cold]
    pub(crate) fn damage(&self, damage: Damage) -> Error {
        Error::damaged(Place::ag(self.ag), damage)
    }
}
