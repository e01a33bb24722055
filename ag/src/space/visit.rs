//! Listing free extents while nobody can allocate them.

use base::{AgBlock, AgNumber, FsBlock};
use error::Result;
use format::btree::BnoBt;
use journal::engine::Transaction;

use crate::group::Groups;

impl Groups {
    /// Calls `each` for free extents of an AG from block `from` on, at most `max`, without claimed and busy blocks.
    /// They stay free until this returns. Returns the block to continue from; `None` at the end of the AG.
    ///
    /// # Errors
    /// I/O errors, damage, and errors of `each`.
    ///
    /// # Locking
    /// `each` is called under the AGF, so allocations in this AG wait for it. `tx`, a reader, holds nothing afterwards.
    pub fn visit_free(
        &self,
        tx: &mut Transaction,
        ag: AgNumber,
        from: AgBlock,
        max: usize,
        each: &mut dyn FnMut(FsBlock, u32) -> Result<()>,
    ) -> Result<Option<AgBlock>> {
        let Some(group) = self.get(ag) else { return Ok(None) };
        let locked = group.lock(tx)?;
        let mut cursor = locked.cursor::<BnoBt>();
        let (mut free, mut seen) = (cursor.lookup_ge(tx, from.get())?, 0);
        let mut failed = Ok(());
        let mut next = from.get();
        while let Some(extent) = free {
            let (start, count) = (extent.startblock.get(), extent.blockcount.get());
            if seen == max {
                tx.release_clean();
                return Ok(Some(AgBlock(next)));
            }
            if start < next || !group.holds(AgBlock(start), count) {
                let found = format_args!("{count} blocks from {start:#x}");
                let at = ("free space by block", "record");
                return Err(group.damage(AgBlock(start), at, "ascending extents within the AG", found));
            }
            group.usable_parts((start, count), false, &mut |at, length| {
                if failed.is_ok() {
                    failed = each(group.fs_block(AgBlock(at)), length);
                }
            });
            failed?;
            failed = Ok(());
            (next, seen) = (start + count, seen + 1);
            free = cursor.next(tx)?;
        }
        tx.release_clean();
        Ok(None)
    }
}
