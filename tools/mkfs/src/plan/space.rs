//! Who gets which blocks of a fresh AG.

use format::new_ag::AgLayout;

use super::Plan;

impl Plan {
    /// Who gets what in one AG.
    pub fn space(&self, ag: u32) -> AgLayout {
        let space = self.space_without_inodes(ag);
        if ag == 0 { space.with_chunk((self.first_chunk, self.chunk_blocks())) } else { space }
    }

    fn space_without_inodes(&self, ag: u32) -> AgLayout {
        let log = self.log.place.filter(|(at, _)| *at == ag).map(|(_, start)| (start, self.log.blocks));
        AgLayout::new(&self.shape, self.ag_length(ag), log)
    }

    /// Where the first inodes fit: at the first aligned block of the first AG with room behind it.
    pub(super) fn place_first_chunk(&self) -> Option<u32> {
        let space = self.space_without_inodes(0);
        let cluster = self.inode_align.max(1);
        let stripe = self.stripe_unit;
        let place = |align: u32| {
            space.free.iter().find_map(|(start, count)| {
                let at = start.checked_next_multiple_of(align)?;
                (at + self.chunk_blocks() <= start + count).then_some(at)
            })
        };
        let striped = if stripe > 0 && stripe.is_multiple_of(cluster) { place(stripe) } else { None };
        striped.or_else(|| place(cluster))
    }
}
