//! The AGI, locked by a transaction.

use std::mem::offset_of;

use base::lock::Rank;
use base::{AgIno, AgNumber};
use error::{Error, Result};
use format::agi::{NULL_AG_INO, RawAgi};
use format::geometry::Geometry;
use format::ondisk::OnDisk;
use format::{Damage, Place};
use journal::engine::{BufferId, DiskExtent, Transaction};

use crate::Groups;

/// A locked AGI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agi {
    /// AG number.
    pub ag: AgNumber,
    /// Buffer in the transaction.
    pub id: BufferId,
}

/// Header sector of the AGI.
const SECTOR: u32 = 2;

fn place_of(geometry: &Geometry, ag: AgNumber) -> DiskExtent {
    DiskExtent { daddr: geometry.ag_header_daddr(ag, SECTOR), bytes: geometry.sector_size }
}

impl Groups {
    /// Locks an AGI, and waits for it. Tries the known buffer first.
    #[track_caller]
    pub(super) fn lock_agi(&self, tx: &mut Transaction, ag: AgNumber) -> Result<Agi> {
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
    /// Locks the AGI, and waits for it.
    ///
    /// # Errors
    /// I/O errors; a damaged AGI.
    #[track_caller]
    pub fn read(tx: &mut Transaction, geometry: &Geometry, ag: AgNumber) -> Result<Self> {
        let verify = |bytes: &[u8]| RawAgi::verify(bytes, geometry, ag).map(drop);
        let id = tx.read(place_of(geometry, ag), Rank::Agi(ag.get()), verify)?;
        Ok(Self { ag, id })
    }

    /// Locks the AGI; `None` if another transaction holds it.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    pub fn try_read(tx: &mut Transaction, geometry: &Geometry, ag: AgNumber) -> Result<Option<Self>> {
        let verify = |bytes: &[u8]| RawAgi::verify(bytes, geometry, ag).map(drop);
        let id = tx.try_read(place_of(geometry, ag), Rank::Agi(ag.get()), verify)?;
        Ok(id.map(|id| Self { ag, id }))
    }

    /// The current fields.
    ///
    /// # Errors
    /// None for a buffer from [`read`](Self::read): it is a sector long.
    pub fn raw<'a>(&self, tx: &'a Transaction) -> Result<&'a RawAgi> {
        let bytes = tx.bytes(self.id);
        RawAgi::view(bytes).ok_or_else(|| self.damage(Damage::short("AGI", RawAgi::SIZE, bytes.len())))
    }

    /// The chunk that was allocated last (`newino`), if it is known.
    pub fn newest(raw: &RawAgi) -> Option<AgIno> {
        Some(raw.newino.get()).filter(|newest| *newest != NULL_AG_INO).map(AgIno)
    }

    /// Stores the inode counts.
    pub(super) fn set_counts(&self, tx: &mut Transaction, count: u32, free: u32) {
        self.put(tx, offset_of!(RawAgi, count), count);
        self.put(tx, offset_of!(RawAgi, freecount), free);
    }

    /// Stores the chunk that was allocated last (`newino`).
    pub(super) fn set_newest(&self, tx: &mut Transaction, start: AgIno) {
        self.put(tx, offset_of!(RawAgi, newino), start.get());
    }

    /// Stores a 32-bit field at its offset in [`RawAgi`], if it changes.
    pub(crate) fn put(&self, tx: &mut Transaction, at: usize, value: u32) {
        let (range, new) = (at..at + size_of::<u32>(), value.to_be_bytes());
        if tx.bytes(self.id).get(range.clone()) != Some(&new) {
            tx.bytes_mut(self.id, range).copy_from_slice(&new);
        }
    }

    /// An error for damage in this AG.
    #[cold]
    pub(crate) fn damage(&self, damage: Damage) -> Error {
        Error::damaged(Place::ag(self.ag), damage)
    }
}
