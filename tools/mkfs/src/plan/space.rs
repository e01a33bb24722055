//! Who gets which blocks of a fresh AG.

use super::Plan;

/// A run of blocks: the first and how many.
pub type Run = (u32, u32);

/// The blocks of a fresh AG behind its roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// What is free, by block.
    pub free: Vec<Run>,
    /// The blocks of the AGFL; none where nothing holds them in one piece.
    pub agfl: Run,
    /// The log, if it is here.
    pub log: Option<Run>,
    /// The first inodes, if they are here.
    pub chunk: Option<Run>,
}

impl Plan {
    /// Who gets what in one AG.
    pub fn space(&self, ag: u32) -> Space {
        let mut space = self.space_without_inodes(ag);
        if ag == 0 {
            let chunk = (self.first_chunk, self.chunk_blocks());
            take(&mut space.free, chunk);
            space.chunk = Some(chunk);
        }
        space
    }

    fn space_without_inodes(&self, ag: u32) -> Space {
        let first = self.roots().end;
        let mut free = vec![(first, self.ag_length(ag).saturating_sub(first))];
        let log = self.log.place.filter(|(at, _)| *at == ag).map(|(_, start)| (start, self.log.blocks));
        if let Some(log) = log {
            take(&mut free, log);
        }
        // The smallest run that is large enough, the first of equals, as the allocator takes it.
        let wanted = self.agfl_blocks();
        let fitting = free.iter().filter(|run| run.1 >= wanted).min_by_key(|run| (run.1, run.0));
        let agfl = fitting.map_or((0, 0), |run| (run.0, wanted));
        take(&mut free, agfl);
        Space { free, agfl, log, chunk: None }
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

/// Takes a run out of the free ones, in one of which it lies.
fn take(free: &mut Vec<Run>, (start, count): Run) {
    let mut rest = Vec::with_capacity(free.len() + 1);
    for (from, length) in free.drain(..) {
        let (end, taken_end) = (from + length, start + count);
        if taken_end <= from || start >= end || count == 0 {
            rest.push((from, length));
            continue;
        }
        if start > from {
            rest.push((from, start - from));
        }
        if taken_end < end {
            rest.push((taken_end, end - taken_end));
        }
    }
    *free = rest;
}
