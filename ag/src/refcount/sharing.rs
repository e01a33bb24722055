//! Finding shared blocks.

use base::{AgBlock, FsBlock};
use error::Result;
use format::btree::{REFCOUNT_COW, RefcountBt};
use journal::engine::Transaction;

use super::RefcountDomain;
use super::counts::RefcountRecord;
use crate::group::{Groups, LockedAg};

/// A part of an extent whose blocks are all shared, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPart {
    /// Offset in the extent, in blocks.
    pub skip: u32,
    /// Blocks.
    pub count: u32,
    /// Whether the blocks are shared, by several files or within one; or were shared, and it is not yet stable that
    /// they no longer are. Such blocks must not be overwritten.
    pub shared: bool,
}

impl Groups {
    /// Divides an extent into shared and unshared parts, in order. All buffers that `tx`, a reader, joins are released
    /// again.
    ///
    /// # Errors
    /// Damage; I/O errors.
    ///
    /// # Locking
    /// The AGF of the extent.
    pub fn shared_parts(&self, tx: &mut Transaction, start: FsBlock, count: u32) -> Result<Vec<SharedPart>> {
        let (group, at) = self.of_block(start, count)?;
        if !self.geometry().features.reflink() {
            return Ok(vec![SharedPart { skip: 0, count, shared: false }]);
        }
        let locked = group.lock(tx)?;
        let parts = locked.shared_parts(tx, at, count);
        tx.release_clean();
        parts
    }
}

impl LockedAg<'_> {
    fn shared_parts(&self, tx: &mut Transaction, at: AgBlock, count: u32) -> Result<Vec<SharedPart>> {
        let (first, end) = (at.get(), at.get() + count);
        let mut parts = Vec::new();
        let mut done = first;
        let mut put = |done: &mut u32, to: u32, shared: bool| {
            if to > *done {
                parts.push(SharedPart { skip: *done - first, count: to - *done, shared });
                *done = to;
            }
        };
        let mut cursor = self.cursor::<RefcountBt>();
        let mut next = match cursor.lookup_le(tx, first)? {
            Some(record) => Some(record),
            None => cursor.next(tx)?,
        };
        let mut before: Option<RefcountRecord> = None;
        while let Some(record) = next.filter(|record| record.startblock.get() & REFCOUNT_COW == 0) {
            // Each record follows the previous one, so this terminates.
            let refcount = self.check_record(&record, RefcountDomain::Shared, before.as_ref())?;
            if refcount.start >= end {
                break;
            }
            put(&mut done, refcount.start.max(first), false);
            put(&mut done, refcount.end().min(end), true);
            before = Some(refcount);
            next = cursor.next(tx)?;
        }
        put(&mut done, end, false);
        Ok(join(self.lately_shared(first, parts)))
    }
}

impl LockedAg<'_> {
    /// Marks busy blocks as shared: they have one owner, but it is not yet stable that they have no other.
    fn lately_shared(&self, first: u32, parts: Vec<SharedPart>) -> Vec<SharedPart> {
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            if part.shared {
                all.push(part);
                continue;
            }
            let end = part.skip + part.count;
            let mut done = part.skip;
            let mut put = |to: u32, shared: bool| {
                if to > done {
                    all.push(SharedPart { skip: done, count: to - done, shared });
                    done = to;
                }
            };
            self.group.usable_parts((first + part.skip, part.count), false, &mut |start, count| {
                put(start - first, true);
                put(start - first + count, false);
            });
            put(end, true);
        }
        all
    }
}

/// Merges adjacent shared parts, which may differ in their refcounts.
fn join(parts: Vec<SharedPart>) -> Vec<SharedPart> {
    let mut joined: Vec<SharedPart> = Vec::with_capacity(parts.len());
    for part in parts {
        match joined.last_mut().filter(|last| last.shared == part.shared) {
            Some(last) => last.count += part.count,
            None => joined.push(part),
        }
    }
    joined
}
