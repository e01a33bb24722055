//! The journal of one volume: whether it is dirty, and what lies between its tail and its head.

use base::Lsn;
use format::damage::Damage;
use format::log::operation::flags;
use format::log::record::{RecordHeader, block_cycle, previous_cycle};
use format::superblock::Superblock;

use block::Device;

use crate::area::LogArea;
use crate::assemble::RecoveredTransactions;
use crate::error::LogError;
use crate::locate::{self, DiscardedRecords, MAX_INFLIGHT_BLOCKS};
use crate::record::{LogRecord, LogRecords};

/// An open journal. It borrows the devices and reads them again for each iteration, so it holds no memory.
#[derive(Debug)]
pub struct Journal<'a> {
    area: LogArea<'a>,
    state: State,
}

/// State of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The volume was unmounted cleanly, or never mounted: nothing to replay.
    Clean {
        /// LSN of the next record.
        head: Lsn,
        /// Incomplete records behind the head.
        discarded: Option<DiscardedRecords>,
    },
    /// Changes that may not be in place.
    Dirty(Dirty),
}

/// The active part of a dirty log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirty {
    /// LSN of the next record.
    pub head: Lsn,
    /// The oldest record that is still needed.
    pub tail: Lsn,
    /// Blocks of 512 bytes from tail to head.
    pub blocks: u32,
    /// Records from tail to head.
    pub records: u32,
    /// Operations in these records.
    pub operations: u64,
    /// Complete transactions: those that will be replayed.
    pub transactions: u32,
    /// Incomplete records behind the head.
    pub discarded: Option<DiscardedRecords>,
    /// The tail in the last record, if records that are discarded have overwritten the blocks there. The changes that
    /// they contained are in place.
    pub overwritten_tail: Option<Lsn>,
}

impl<'a> Journal<'a> {
    /// Locates head and tail; verifies every record between them if the log is dirty.
    ///
    /// `data` is the device of the volume, `external` that of the log if the superblock says that it has its own.
    ///
    /// # Errors
    /// [`LogError::NoLogDevice`], [`LogError::Size`], [`LogError::NoHead`], [`LogError::Lost`], [`LogError::Record`],
    /// [`LogError::Writer`], [`LogError::Device`].
    pub fn open(
        superblock: &Superblock,
        data: &'a dyn Device,
        external: Option<&'a dyn Device>,
    ) -> Result<Self, LogError> {
        let area = LogArea::new(&superblock.geometry, data, external)?;
        let located = locate::locate(&area)?;
        let (head, discarded) = (located.head, located.discarded);
        let lsn = Lsn(superblock.raw.lsn.get());
        // A new record would look older than the metadata that it changes, and would not be replayed.
        if lsn > head && lsn != Lsn(u64::MAX) {
            return Err(LogError::Lost { lsn, head });
        }
        let state = match located.last {
            None => State::Clean { head, discarded },
            Some(last) if last.is_unmount() => State::Clean { head, discarded },
            Some(last) => {
                let verified =
                    Active { area: &area, head, uuid: &superblock.raw.uuid }.verify(&last.header)?;
                State::Dirty(Dirty { discarded, ..verified })
            }
        };
        Ok(Self { area, state })
    }

    /// State of the log.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The active part, if the log is dirty.
    pub fn dirty(&self) -> Option<&Dirty> {
        match &self.state {
            State::Dirty(dirty) => Some(dirty),
            State::Clean { .. } => None,
        }
    }

    /// LSN of the next record.
    pub fn head(&self) -> Lsn {
        match &self.state {
            State::Clean { head, .. } => *head,
            State::Dirty(dirty) => dirty.head,
        }
    }

    /// The ring of log blocks.
    pub fn area(&self) -> &LogArea<'a> {
        &self.area
    }

    /// The records from tail to head; none if the log is clean.
    pub fn records(&self) -> LogRecords<'_> {
        let (tail, blocks) = self.dirty().map_or((0, 0), |dirty| (dirty.tail.block(), dirty.blocks));
        LogRecords::new(&self.area, tail, blocks)
    }

    /// The complete transactions from tail to head, in the order of their commits.
    pub fn transactions(&self) -> RecoveredTransactions<'_> {
        RecoveredTransactions::new(self.records(), &self.area)
    }
}

/// Verification of a dirty log, before anything relies on it.
struct Active<'a> {
    area: &'a LogArea<'a>,
    head: Lsn,
    uuid: &'a [u8; 16],
}

impl Active<'_> {
    /// Verifies all records from the tail of the last one on.
    fn verify(&self, last: &RecordHeader) -> Result<Dirty, LogError> {
        let at_last = |damage| LogError::Record { block: last.lsn.block(), damage };
        let distance = locate::tail_distance(self.area, last.lsn, last.tail_lsn).map_err(at_last)?;
        let blocks = (distance + last.blocks()).min(self.area.blocks());
        match self.walk(last.tail_lsn, blocks) {
            Err(LogError::Record { block, damage }) if block == last.tail_lsn.block() => {
                let Some((tail, blocks)) = self.tail_behind_overwritten(block, blocks)? else {
                    return Err(LogError::Record { block, damage });
                };
                Ok(Dirty { overwritten_tail: Some(last.tail_lsn), ..self.walk(tail, blocks)? })
            }
            other => other,
        }
    }

    fn walk(&self, tail: Lsn, blocks: u32) -> Result<Dirty, LogError> {
        let (mut records, mut operations, mut transactions) = (0, 0, 0);
        for record in LogRecords::new(self.area, tail.block(), blocks) {
            let record = record?;
            self.verify_record(&record)?;
            records += 1;
            operations += u64::from(record.header.operations);
            let commits = record.operations().map_while(Result::ok).filter(|op| op.has(flags::COMMIT));
            transactions += commits.count() as u32; // below the log's bytes
        }
        let (head, discarded, overwritten_tail) = (self.head, None, None);
        Ok(Dirty { head, tail, blocks, records, operations, transactions, discarded, overwritten_tail })
    }

    fn verify_record(&self, record: &LogRecord) -> Result<(), LogError> {
        let (header, block) = (&record.header, record.header.lsn.block());
        header.verify_writer(self.uuid).map_err(|damage| LogError::Writer { block, damage })?;
        let expected = self.cycle_of(block);
        if header.lsn.cycle() != expected {
            let damage = Damage::new("log record header", "cycle", expected, header.lsn.cycle());
            return Err(LogError::Record { block, damage });
        }
        Ok(())
    }

    /// The cycle of a block written before the head.
    fn cycle_of(&self, block: u32) -> u32 {
        let newer = self.head.cycle();
        if block < self.head.block() { newer } else { previous_cycle(newer) }
    }

    /// The first record behind a tail whose blocks were overwritten by records in flight, and its distance to the head.
    ///
    /// The blocks are right behind the head and have the newer cycle. Their space was reused, so their changes are in
    /// place; but no complete record with the newer tail was written yet.
    fn tail_behind_overwritten(&self, tail: u32, blocks: u32) -> Result<Option<(Lsn, u32)>, LogError> {
        let ahead = self.area.distance(self.head.block(), tail);
        let reach = MAX_INFLIGHT_BLOCKS.saturating_sub(ahead).min(blocks);
        let bytes = self.area.read_blocks(tail, reach)?;
        let mut overwritten = false;
        for (n, block) in (0u32..).zip(bytes.chunks_exact(format::log::BLOCK_BYTES)) {
            let at = self.area.advance(tail, n);
            let is_old = block_cycle(block) == Some(self.cycle_of(at));
            overwritten |= !is_old;
            if !overwritten {
                return Ok(None);
            }
            let lsn = RecordHeader::parse(block, at).ok().map(|header| header.lsn);
            if let Some(lsn) = lsn.filter(|_| is_old) {
                return Ok(Some((lsn, blocks - n)));
            }
        }
        Ok(None)
    }
}
