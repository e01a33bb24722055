//! Claims: a contiguous run of blocks and its owner.

use base::{AgBlock, AgNumber, Ino};
use format::btree::{Rmap, rmap};

/// Owner of free space, which no reverse mapping has.
pub(crate) const OWNER_FREE: u64 = rmap::OWNER_NULL as u64;

/// Blocks of one AG and their owner, with the fields of a reverse mapping.
///
/// The order is that of the rmapbt: block, owner, offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub ag: u32,
    pub start: u32,
    /// An inode, or one of the negative owners of `format::btree::rmap`; [`OWNER_FREE`] for free space.
    pub owner: u64,
    /// Logical block, with the flags of a reverse mapping in the high bits; 0 for metadata.
    pub offset: u64,
    /// Number of blocks, at least 1.
    pub count: u32,
    /// [`NO_SHARING`] or 0.
    pub flags: u32,
}

/// The owner must not share blocks: its inode lacks the reflink flag.
pub(crate) const NO_SHARING: u32 = 1;

/// Bytes of a claim in the temporary file.
pub(crate) const CLAIM_BYTES: usize = 32;

impl Claim {
    pub fn metadata(ag: AgNumber, start: AgBlock, count: u32, owner: i64) -> Self {
        Self { ag: ag.get(), start: start.get(), owner: owner as u64, offset: 0, count, flags: 0 }
    }

    pub fn of_inode(ag: AgNumber, start: AgBlock, count: u32, ino: Ino, offset: u64) -> Self {
        Self { ag: ag.get(), start: start.get(), owner: ino.get(), offset, count, flags: 0 }
    }

    pub fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.count)
    }

    pub fn is_free(&self) -> bool {
        self.owner == OWNER_FREE
    }

    /// Whether the blocks are contents of a fork, whose offset increases with the block number.
    pub fn is_contents(&self) -> bool {
        self.owner >> 63 == 0 && self.offset & rmap::BMBT_BLOCK == 0
    }

    /// Whether the blocks are contents of a data fork, which may be shared with the feature reflink.
    pub fn is_shareable(&self) -> bool {
        self.is_contents() && self.offset & rmap::ATTR_FORK == 0
    }

    /// Whether `next` continues this claim, so that both can be merged.
    pub fn is_continued_by(&self, next: &Self) -> bool {
        let follows = if self.is_contents() {
            self.offset.wrapping_add(self.count.into()) == next.offset
        } else {
            self.offset == next.offset
        };
        (self.ag, self.owner) == (next.ag, next.owner)
            && self.end() == u64::from(next.start)
            && follows
            && self.count.checked_add(next.count).is_some()
    }

    /// Converts a reverse mapping.
    pub fn of_rmap(ag: AgNumber, rmap: &Rmap) -> Self {
        Self {
            ag: ag.get(),
            start: rmap.startblock.get(),
            owner: rmap.owner.get(),
            offset: rmap.offset.get(),
            count: rmap.blockcount.get(),
            flags: 0,
        }
    }

    pub fn to_bytes(self) -> [u8; CLAIM_BYTES] {
        let mut bytes = [0; CLAIM_BYTES];
        let narrow = [self.ag, self.start, self.count, self.flags];
        for (to, from) in bytes.chunks_exact_mut(4).zip(narrow) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        for (to, from) in bytes.chunks_exact_mut(8).skip(2).zip([self.owner, self.offset]) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; CLAIM_BYTES]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_le_bytes(bytes)
        });
        let mut word = || words.next().unwrap_or(0);
        let (ag_start, count_flags) = (word(), word());
        Self {
            ag: ag_start as u32,
            start: (ag_start >> 32) as u32,
            count: count_flags as u32,
            flags: (count_flags >> 32) as u32,
            owner: word(),
            offset: word(),
        }
    }
}

/// Describes the owner of a claim.
pub(crate) fn owner_name(owner: u64) -> String {
    let special = match owner as i64 {
        rmap::OWNER_NULL => "free space",
        rmap::OWNER_UNKNOWN => "an unknown owner",
        rmap::OWNER_FS => "the AG's headers",
        rmap::OWNER_LOG => "the log",
        rmap::OWNER_AG => "free space btrees, rmapbt and AGFL",
        rmap::OWNER_INOBT => "inode btrees",
        rmap::OWNER_INODES => "inodes",
        rmap::OWNER_REFC => "the refcountbt",
        rmap::OWNER_COW => "CoW staging",
        number if number < 0 => return format!("owner {number}"),
        ino => return format!("inode {ino}"),
    };
    special.to_owned()
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { start, count, .. } = self;
        write!(f, "{start:#x} for {count} blocks: {}", owner_name(self.owner))?;
        if self.owner >> 63 != 0 {
            return Ok(());
        }
        let fork = if self.offset & rmap::ATTR_FORK != 0 { "attribute fork" } else { "data fork" };
        if self.offset & rmap::BMBT_BLOCK != 0 {
            return write!(f, ", bmap btree of the {fork}");
        }
        write!(f, ", {fork} at {}", self.offset & rmap::OFFSET_MASK)?;
        if self.offset & rmap::UNWRITTEN != 0 { write!(f, ", unwritten") } else { Ok(()) }
    }
}

/// Merges adjacent claims of sorted `claims` where one reverse mapping can describe them.
pub(crate) fn merge_adjacent(claims: &mut Vec<Claim>) {
    claims.dedup_by(|next, kept| {
        let merge = kept.is_continued_by(next);
        if merge {
            kept.count += next.count;
        }
        merge
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_every_field() {
        let claim = Claim { ag: 1, start: 2, owner: 3 << 40, offset: 4 << 50, count: 5, flags: 6 };
        assert_eq!(Claim::from_bytes(&claim.to_bytes()), claim);
    }

    #[test]
    fn only_claims_of_one_mapping_are_merged() {
        let of = |start, count, offset| Claim { ag: 0, start, owner: 9, offset, count, flags: 0 };
        let bmbt = rmap::BMBT_BLOCK;
        let mut claims = vec![of(0, 2, 7), of(2, 1, 9), of(3, 1, 11), of(4, 1, bmbt), of(5, 1, bmbt)];
        merge_adjacent(&mut claims);
        assert_eq!(claims, [of(0, 3, 7), of(3, 1, 11), of(4, 2, bmbt)]);
    }
}
