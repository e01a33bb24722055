//! Exchange of ranges of two files, one mapping at a time, with an intent (XMI) and a done item (XMD).
//!
//! Each step exchanges a range that is one extent or hole in both files: it defers four changes of their extent maps,
//! and logs the intent again for the rest. The last step sets the sizes; another one clears the reflink flags.
//!
//! # Locking
//! Both inodes must stay locked until the last commit.

use std::sync::Arc;

use base::{FileBlock, Ino};
use error::{Error, Result};
use format::damage::{Damage, Place};
use format::extent::{Extent, MAX_FILE_BLOCKS};
use format::inode::{ForkKind, flags2};
use format::log::exchange::{ExchangeIntent, flags};
use format::log::item::ItemType;
use format::ondisk::U64;
use journal::engine::{DeferredKind, DeferredOperation, DeferredProgress, Loggable, Transaction};

use crate::extents::ExtentOrHole;
use crate::fork::deferred::{MapChange, map_later};
use crate::fork::{Fork, NOT_LOCKED};
use crate::inode::LockedInode;
use crate::shared::Shared;

const NAME: &str = "range exchange intent";

/// The rest of an exchange.
#[derive(Debug)]
struct DeferredExchange {
    shared: Arc<Shared>,
    /// The rest, in the form of the log.
    exchange: ExchangeIntent,
}

/// Returns the deferred operation of a recovered intent. The inodes must be locked at the commit.
///
/// # Errors
/// Damage: the ranges are not valid, or a flag is unknown.
pub fn recovered(shared: &Arc<Shared>, exchange: &ExchangeIntent) -> Result<Box<dyn DeferredOperation>> {
    verify(shared, exchange)?;
    Ok(Box::new(DeferredExchange { shared: Arc::clone(shared), exchange: *exchange }))
}

/// Verifies an exchange.
fn verify(shared: &Shared, exchange: &ExchangeIntent) -> Result<()> {
    let known = flags::ALL.iter().fold(0, |sum, (bit, _)| sum | bit);
    let ranges = exchange.files.into_iter().zip(exchange.offsets).zip(exchange.sizes);
    for ((ino, offset), size) in ranges {
        let wrong = |field, expected, found: &dyn std::fmt::Display| {
            Err(Error::damaged(Place::ino(ino), Damage::new(NAME, field, expected, found)))
        };
        if !shared.geometry.ino_is_valid(ino) {
            return wrong("inode", "an inode of the volume", &ino);
        }
        if exchange.flags & !known != 0 {
            return wrong("flags", "known ones", &format_args!("{:#x}", exchange.flags));
        }
        let end = offset.get().checked_add(exchange.blocks);
        if end.is_none_or(|end| end > MAX_FILE_BLOCKS) {
            return wrong("blockcount", "an end below 2^54", &exchange.blocks);
        }
        if exchange.flags & flags::SET_SIZES != 0 && size > i64::MAX as u64 {
            return wrong("isize", "a possible size", &size);
        }
    }
    Ok(())
}

/// Returns the first part of a range that is one extent or hole.
fn first_part(
    shared: &Shared,
    tx: &mut Transaction,
    inode: &mut LockedInode,
    kind: ForkKind,
    at: FileBlock,
    blocks: u64,
) -> Result<ExtentOrHole> {
    let mut fork = Fork::open(shared, inode, kind)?;
    if !fork.has_extents() {
        let damage = Damage::new(NAME, "inode", "a fork that maps blocks", "one that does not");
        return Err(Error::damaged(Place::ino(inode.ino()), damage));
    }
    fork.piece(Some(tx), at, FileBlock(at.get() + blocks))
}

impl DeferredExchange {
    fn kind(&self) -> ForkKind {
        if self.exchange.flags & flags::ATTR_FORK != 0 { ForkKind::Attr } else { ForkKind::Data }
    }

    fn has(&self, flag: u64) -> bool {
        self.exchange.flags & flag != 0
    }

    fn inode<'l>(&self, locked: &'l mut [&mut dyn Loggable], file: usize) -> Result<&'l mut LockedInode> {
        let ino = self.exchange.files.get(file).copied().unwrap_or_default();
        LockedInode::among(locked, ino).ok_or(NOT_LOCKED)
    }

    /// Removes `blocks` exchanged blocks from the rest.
    fn advance(&mut self, blocks: u64) {
        for offset in &mut self.exchange.offsets {
            *offset = FileBlock(offset.get() + blocks);
        }
        self.exchange.blocks -= blocks;
    }

    /// Skips equal mappings. Returns the next mappings to exchange, of the same length, in both files.
    fn next_difference(
        &mut self,
        tx: &mut Transaction,
        locked: &mut [&mut dyn Loggable],
    ) -> Result<Option<[ExtentOrHole; 2]>> {
        let shared = Arc::clone(&self.shared);
        let kind = self.kind();
        while self.exchange.blocks > 0 {
            let [at_first, at_second] = self.exchange.offsets;
            let mut first =
                first_part(&shared, tx, self.inode(locked, 0)?, kind, at_first, self.exchange.blocks)?;
            let is_written = first.mapping.is_some_and(|(_, unwritten)| !unwritten);
            if self.has(flags::WRITTEN_ONLY) && !is_written {
                self.advance(first.count);
                continue;
            }
            let second = first_part(&shared, tx, self.inode(locked, 1)?, kind, at_second, first.count)?;
            first.count = second.count;
            if first.mapping != second.mapping {
                return Ok(Some([first, second]));
            }
            self.advance(first.count);
        }
        Ok(None)
    }

    /// Defers the exchange of one mapping.
    fn exchange_one(
        &mut self,
        tx: &mut Transaction,
        locked: &mut [&mut dyn Loggable],
        parts: [ExtentOrHole; 2],
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut space = shared.groups.space(0)?;
        let kind = self.kind();
        let [first, second] = parts;
        let [at_first, at_second] = self.exchange.offsets;
        let [file, other] = self.exchange.files;
        let changes = [
            (MapChange::Unmap, file, at_first, first),
            (MapChange::Unmap, other, at_second, second),
            (MapChange::Map, file, at_first, second),
            (MapChange::Map, other, at_second, first),
        ];
        for (change, ino, offset, part) in changes {
            let Some((start, unwritten)) = part.mapping else { continue };
            let extent = Extent { offset, start, count: part.count, unwritten };
            map_later(&shared, tx, &mut *space, change, ino, kind, &extent)?;
        }
        if self.has(flags::SET_SIZES) && kind == ForkKind::Data {
            for (at, offset) in [at_first, at_second].into_iter().enumerate() {
                // No block may be mapped behind the end of the file, also between the steps.
                let end = (offset.get() + first.count) << shared.geometry.block_log;
                let size = end.min(self.exchange.sizes.get(at).copied().unwrap_or(0));
                let inode = self.inode(locked, at)?;
                if size > inode.size() {
                    inode.set_size(size);
                }
            }
        }
        self.advance(first.count);
        Ok(())
    }

    fn set_sizes(&self, locked: &mut [&mut dyn Loggable]) -> Result<()> {
        for (at, size) in self.exchange.sizes.into_iter().enumerate() {
            self.inode(locked, at)?.set_size(size);
        }
        Ok(())
    }

    /// Clears the reflink flags of files that share no blocks any more.
    fn clear_reflink(&mut self, locked: &mut [&mut dyn Loggable]) -> Result<()> {
        for (at, flag) in [flags::CLEAR_REFLINK_1, flags::CLEAR_REFLINK_2].into_iter().enumerate() {
            if self.has(flag) {
                let core = self.inode(locked, at)?.edit();
                core.flags2 = U64::new(core.flags2.get() & !flags2::REFLINK);
            }
        }
        self.exchange.flags &= !CLEAR;
        Ok(())
    }
}

const CLEAR: u64 = flags::CLEAR_REFLINK_1 | flags::CLEAR_REFLINK_2;

impl DeferredOperation for DeferredExchange {
    fn kind(&self) -> DeferredKind {
        DeferredKind { counted: false, ..DeferredKind::new(ItemType::Xmi, ItemType::Xmd, 1) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let exchange = &self.exchange;
        let pairs = [exchange.files.map(Ino::get), exchange.offsets.map(FileBlock::get)];
        let [files, offsets] = pairs;
        files.iter().for_each(|ino| out.extend_from_slice(&ino.to_le_bytes()));
        exchange.generations.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        offsets.iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
        out.extend_from_slice(&exchange.blocks.to_le_bytes());
        out.extend_from_slice(&exchange.flags.to_le_bytes());
        exchange.sizes.iter().for_each(|size| out.extend_from_slice(&size.to_le_bytes()));
    }

    fn perform(
        &mut self,
        tx: &mut Transaction,
        locked: &mut [&mut dyn Loggable],
    ) -> Result<DeferredProgress> {
        if self.exchange.blocks > 0 {
            if let Some(parts) = self.next_difference(tx, locked)? {
                self.exchange_one(tx, locked, parts)?;
            }
            if self.exchange.blocks == 0 && self.has(flags::SET_SIZES) {
                self.set_sizes(locked)?;
            }
        } else {
            self.clear_reflink(locked)?;
        }
        let more = self.exchange.blocks > 0 || self.has(CLEAR);
        Ok(if more { DeferredProgress::Again } else { DeferredProgress::Done })
    }
}
