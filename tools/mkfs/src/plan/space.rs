//! Use of the blocks of a new AG.

use format::new_ag::AgLayout;

use super::Plan;

impl Plan {
    /// The layout of one AG.
    pub fn space(&self, ag: u32) -> AgLayout {
        let space = self.space_without_inodes(ag);
        if ag == 0 { space.with_chunk((self.first_chunk, self.chunk_blocks())) } else { space }
    }

    fn space_without_inodes(&self, ag: u32) -> AgLayout {
        let log = self.log.start.filter(|start| start.ag == ag).map(|start| (start.block, self.log.blocks));
        AgLayout::new(&self.shape, self.ag_length(ag), log)
    }

    /// The first block of the first inodes: the first aligned block of AG 0 with enough free space.
    pub(super) fn first_chunk_start(&self) -> Option<u32> {
        let space = self.space_without_inodes(0);
        let find = |align: u32| {
            space.free.iter().find_map(|(start, count)| {
                let aligned = start.checked_next_multiple_of(align)?;
                (aligned + self.chunk_blocks() <= start + count).then_some(aligned)
            })
        };
        let (align, stripe) = (self.inode_align.max(1), self.stripe_unit);
        let striped = if stripe > 0 && stripe.is_multiple_of(align) { find(stripe) } else { None };
        striped.or_else(|| find(align))
    }
}
