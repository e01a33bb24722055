//! Contents of many new files, written without folios.
//!
//! A caller that creates thousands of files and has their contents needs no cache: the bytes are kept as they are, and
//! written together to contiguous blocks. No folio is allocated and filled, and no map is read.
//!
//! | step | does |
//! |---|---|
//! | [`BulkWriter::put`] | keeps bytes, and reserves their blocks |
//! | `place` | claims blocks, by a [`ClaimPool`] as writeback does |
//! | `write` | writes everything under one plug ([`Cache::write_plugged`]) |
//! | [`Cache::finish_writes`] | maps and sizes, several small files in one transaction |
//!
//! # Invariants
//! - Until [`BulkWriter::finish`] has returned, a file has its old size; then its new contents.
//! - All claimed blocks are reserved: claims are dropped before their reservation is released.
//!
//! # Locking
//! None of its own.

use std::sync::Arc;

use backing::{Backing, ClaimedBlocks, WriteCompletion, WrittenRange, no_space};
use base::{FileBlock, FsBlock, errno};
use block::{Plug, WriteRequest};
use error::Error;

use crate::cache::Cache;
use crate::claim_pool::ClaimPool;

/// See the module. `F` keeps a file's inode in memory.
#[derive(Debug)]
pub struct BulkWriter<B: Backing, F> {
    cache: Arc<Cache<B>>,
    writes: Vec<PendingWrite<B, F>>,
}

/// Contiguous contents of a file.
#[derive(Debug)]
struct PendingWrite<B: Backing, F> {
    file: F,
    offset: FileBlock,
    /// Whole blocks; the last one is padded with zeros.
    buffers: Vec<Vec<u8>>,
    /// Length in blocks.
    blocks: u64,
    /// Size of the file afterwards, at least.
    size: u64,
    /// Reserved blocks: for the contents, and for the extent btree.
    reserved: u64,
    /// Claimed blocks, in order.
    claims: Vec<B::Claim>,
}

impl<B: Backing, F: AsRef<B::File>> BulkWriter<B, F> {
    /// Returns a writer without pending writes.
    pub fn new(cache: &Arc<Cache<B>>) -> Self {
        Self { cache: Arc::clone(cache), writes: Vec::new() }
    }

    /// Adds contents of a file that is not cached, at an offset that is a multiple of the block size, where nothing was
    /// written before. Without bytes the file grows to `offset`, which need not be aligned then. Writes to a file come
    /// in the order of their offsets.
    ///
    /// If no blocks can be reserved, finishes all earlier writes, and then writes this one at once: its blocks are
    /// claimed first, as fewer are reserved for the extents of known claims than for the worst case. `release` is
    /// called if this runs out of space, too ([`no_space`], stage 4).
    ///
    /// # Errors
    /// `EINVAL` if `offset` is not aligned; `ENOSPC`; those of [`finish`](Self::finish).
    pub fn put(
        &mut self,
        file: F,
        offset: u64,
        mut bytes: Vec<u8>,
        release: impl FnOnce() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let block_size = 1u64 << self.cache.block_log;
        if !bytes.is_empty() && !offset.is_multiple_of(block_size) {
            return Err(Error::Refused { errno: errno::EINVAL, why: "contents begin within a block" });
        }
        let size = offset + bytes.len() as u64;
        bytes.resize(bytes.len().next_multiple_of(block_size as usize), 0);
        let mut write = PendingWrite {
            file,
            offset: FileBlock(offset >> self.cache.block_log),
            blocks: bytes.len() as u64 >> self.cache.block_log,
            buffers: vec![bytes],
            size,
            reserved: 0,
            claims: Vec::new(),
        };
        let blocks = write.blocks + self.tree_blocks(&write, write.blocks)?;
        match self.cache.backing.reserve(blocks) {
            Ok(()) => {
                write.reserved = blocks;
                self.push(write);
                Ok(())
            }
            Err(Error::NoSpace { .. }) => {
                self.finish()?;
                no_space::retry(|| self.claim_and_reserve(&mut write), release)?;
                self.writes.push(write);
                self.finish()
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a write, joined to the last one if it continues that.
    fn push(&mut self, write: PendingWrite<B, F>) {
        let ino = |write: &PendingWrite<B, F>| self.cache.backing.ino(write.file.as_ref());
        match self.writes.last_mut() {
            Some(last)
                if ino(last) == ino(&write) && last.offset.get() + last.blocks == write.offset.get() =>
            {
                last.buffers.extend(write.buffers);
                last.blocks += write.blocks;
                last.reserved += write.reserved;
                last.size = write.size;
            }
            _ => self.writes.push(write),
        }
    }

    /// Returns how many blocks the extent btree of a file may take for `records` extents of a write, after the file's
    /// extents and its earlier writes, of which each block may become an extent.
    fn tree_blocks(&self, write: &PendingWrite<B, F>, records: u64) -> Result<u64, Error> {
        let backing = &self.cache.backing;
        let file = write.file.as_ref();
        let mut extents = backing.extents(file, 0)?;
        if write.offset > FileBlock(0) {
            let earlier =
                self.writes.iter().filter(|other| backing.ino(other.file.as_ref()) == backing.ino(file));
            extents += earlier.map(|earlier| earlier.blocks).sum::<u64>();
        }
        Ok(backing.tree_blocks(Some(extents), records))
    }

    /// Claims the blocks of a write, and reserves what the extent btree takes for exactly these claims. On a nearly
    /// full volume there is no space for the extents that it could have had at worst.
    fn claim_and_reserve(&self, write: &mut PendingWrite<B, F>) -> Result<(), Error> {
        let backing = &self.cache.backing;
        backing.reserve(write.blocks)?;
        write.reserved = write.blocks;
        let reserved = self.place(std::slice::from_mut(write)).and_then(|()| {
            let blocks = self.tree_blocks(write, write.claims.len() as u64)?;
            backing.reserve(blocks)?;
            write.reserved += blocks;
            Ok(())
        });
        reserved.inspect_err(|_| self.cancel(write))
    }

    /// Writes and finishes all pending writes. They are stable after the next sync of the volume.
    ///
    /// # Errors
    /// I/O errors of writes: the files are as they were. Errors of transactions shut the volume down.
    pub fn finish(&mut self) -> Result<(), Error> {
        let mut writes = std::mem::take(&mut self.writes);
        let written = self.place(&mut writes).and_then(|()| self.write(&writes));
        if let Err(error) = written {
            writes.iter_mut().for_each(|write| self.cancel(write));
            return Err(error);
        }
        let mut completions: Vec<_> = writes.iter_mut().map(PendingWrite::completion).collect();
        completions.sort_by_key(|completion| self.cache.backing.ino(completion.file));
        let mut result = self.cache.finish_writes(&mut completions);
        for mut completion in completions {
            let refused = completion.refused.take();
            completion.release(&self.cache.backing);
            result = result.and(refused.map_or(Ok(()), |why| Err(*why)));
        }
        result
    }

    /// Releases claims and reservation of a write that is not finished.
    fn cancel(&self, write: &mut PendingWrite<B, F>) {
        write.claims.clear();
        self.cache.backing.unreserve(std::mem::take(&mut write.reserved));
    }

    /// Claims the blocks that writes lack. Neighbouring files of one group get contiguous blocks.
    fn place(&self, writes: &mut [PendingWrite<B, F>]) -> Result<(), Error> {
        let group = |write: &PendingWrite<B, F>| self.cache.backing.group(write.file.as_ref());
        let mut pool = ClaimPool::default();
        for neighbours in writes.chunk_by_mut(|one, other| group(one) == group(other)) {
            let Some(first) = neighbours.first() else { continue };
            pool.serve(group(first), neighbours.iter().map(PendingWrite::missing).sum());
            for write in neighbours {
                let mut missing = write.missing();
                while missing > 0 {
                    let claim = pool.take(&self.cache, write.file.as_ref(), missing)?;
                    missing -= claim.count();
                    write.claims.push(claim);
                }
            }
        }
        Ok(())
    }

    /// Writes all contents to the claimed blocks.
    fn write(&self, writes: &[PendingWrite<B, F>]) -> Result<(), Error> {
        let log = self.cache.block_log;
        let mut plug = Plug::new();
        for write in writes {
            let mut claims = write.claims.iter().map(|claim| (claim.start(), claim.count()));
            let mut target = claims.next();
            for mut bytes in write.buffers.iter().map(Vec::as_slice) {
                while let Some((start, count)) = target.filter(|_| !bytes.is_empty()) {
                    let fits = bytes.len().min(usize::try_from(count << log).unwrap_or(usize::MAX));
                    let (now, later) = bytes.split_at(fits);
                    plug.push(WriteRequest::new(self.cache.backing.device_offset(start), now));
                    let blocks = fits as u64 >> log;
                    let left = count - blocks;
                    let rest = (left > 0).then(|| (FsBlock(start.get() + blocks), left));
                    target = rest.or_else(|| claims.next());
                    bytes = later;
                }
            }
        }
        match self.cache.write_plugged(plug).1.into_iter().next() {
            Some((_, error)) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl<B: Backing, F> PendingWrite<B, F> {
    /// Blocks that are not claimed yet.
    fn missing(&self) -> u64 {
        self.blocks - self.claims.iter().map(ClaimedBlocks::count).sum::<u64>()
    }

    /// Returns what is finished of this write. The files are new: nothing was mapped there, and no rmap record is
    /// split.
    fn completion(&mut self) -> WriteCompletion<'_, B>
    where
        F: AsRef<B::File>,
    {
        let mut offset = self.offset;
        let written = std::mem::take(&mut self.claims).into_iter().map(|claim| {
            let range = WrittenRange { offset, count: claim.count(), claim: Some(claim) };
            offset = FileBlock(offset.get() + range.count);
            range
        });
        let written: Vec<_> = written.collect();
        let (reserved, records) = (std::mem::take(&mut self.reserved), written.len() as u64);
        let completion = WriteCompletion::new(self.file.as_ref(), written, reserved, records);
        WriteCompletion { size: Some(self.size), ..completion }
    }
}

/// Drops pending writes.
impl<B: Backing, F> Drop for BulkWriter<B, F> {
    fn drop(&mut self) {
        for PendingWrite { claims, reserved, .. } in std::mem::take(&mut self.writes) {
            drop(claims);
            self.cache.backing.unreserve(reserved);
        }
    }
}
