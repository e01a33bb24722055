//! One run of blocks and who says that it is his.

use base::{AgBlock, AgNumber, Ino};
use format::btree::{Rmap, rmap};

/// Owner of free space: no reverse mapping has it.
pub(crate) const OWNER_FREE: u64 = rmap::OWNER_NULL as u64;

/// A run of blocks within one AG, in the terms of a reverse mapping.
///
/// The order is that of the reverse-mapping tree: block, owner, offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    pub ag: u32,
    pub start: u32,
    /// An inode, or one of the negative owners of `format::btree::rmap`; [`OWNER_FREE`] for free space.
    pub owner: u64,
    /// As in a reverse mapping: logical block with its flags above; 0 for metadata.
    pub offset: u64,
    /// Blocks: at least 1.
    pub count: u32,
    /// [`NO_SHARING`].
    pub notes: u32,
}

/// The owner may not share blocks: his inode lacks the reflink flag.
pub(crate) const NO_SHARING: u32 = 1;

/// Bytes of a claim in a temporary file.
pub(crate) const CLAIM_BYTES: usize = 32;

impl Claim {
    pub fn metadata(ag: AgNumber, start: AgBlock, count: u32, owner: i64) -> Self {
        Self { ag: ag.get(), start: start.get(), owner: owner as u64, offset: 0, count, notes: 0 }
    }

    pub fn of_inode(ag: AgNumber, start: AgBlock, count: u32, ino: Ino, offset: u64) -> Self {
        Self { ag: ag.get(), start: start.get(), owner: ino.get(), offset, count, notes: 0 }
    }

    pub fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.count)
    }

    pub fn is_free(&self) -> bool {
        self.owner == OWNER_FREE
    }

    /// A file's own blocks, whose offsets run along with the blocks.
    pub fn is_contents(&self) -> bool {
        self.owner >> 63 == 0 && self.offset & rmap::BMBT_BLOCK == 0
    }

    /// Contents of a data fork: what may be shared, where the volume can share at all.
    pub fn is_shareable(&self) -> bool {
        self.is_contents() && self.offset & rmap::ATTR_FORK == 0
    }

    /// Whether `next` continues this claim, so that both are one mapping.
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

    /// The claim as a reverse mapping would say it.
    pub fn mapping(&self) -> (u32, u32, u64, u64) {
        (self.start, self.count, self.owner, self.offset)
    }

    /// The claim that a reverse mapping makes.
    pub fn of_mapping(ag: AgNumber, rmap: &Rmap) -> Self {
        Self {
            ag: ag.get(),
            start: rmap.startblock.get(),
            owner: rmap.owner.get(),
            offset: rmap.offset.get(),
            count: rmap.blockcount.get(),
            notes: 0,
        }
    }

    pub fn to_bytes(self) -> [u8; CLAIM_BYTES] {
        let mut bytes = [0; CLAIM_BYTES];
        let halves = [self.ag, self.start, self.count, self.notes];
        for (to, from) in bytes.chunks_exact_mut(4).zip(halves) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        for (to, from) in bytes.chunks_exact_mut(8).skip(2).zip([self.owner, self.offset]) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: &[u8; CLAIM_BYTES]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|word| {
            let mut whole = [0; 8];
            whole.copy_from_slice(word);
            u64::from_le_bytes(whole)
        });
        let mut word = || words.next().unwrap_or(0);
        let (place, size) = (word(), word());
        Self {
            ag: place as u32,
            start: (place >> 32) as u32,
            count: size as u32,
            notes: (size >> 32) as u32,
            owner: word(),
            offset: word(),
        }
    }
}

/// The owner of a claim in words.
pub(crate) fn owner_name(owner: u64) -> String {
    let special = match owner as i64 {
        rmap::OWNER_NULL => "free space",
        rmap::OWNER_UNKNOWN => "an unknown owner",
        rmap::OWNER_FS => "the AG's headers",
        rmap::OWNER_LOG => "the log",
        rmap::OWNER_AG => "free space trees and AGFL",
        rmap::OWNER_INOBT => "inode trees",
        rmap::OWNER_INODES => "inodes",
        rmap::OWNER_REFC => "the reference-count tree",
        rmap::OWNER_COW => "copy-on-write staging",
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
            return write!(f, ", extent map of the {fork}");
        }
        write!(f, ", {fork} at {}", self.offset & rmap::OFFSET_MASK)?;
        if self.offset & rmap::UNWRITTEN != 0 { write!(f, ", unwritten") } else { Ok(()) }
    }
}

/// Joins neighbours that are one mapping; `claims` are sorted.
pub(crate) fn coalesce(claims: &mut Vec<Claim>) {
    claims.dedup_by(|next, kept| {
        let joins = kept.is_continued_by(next);
        if joins {
            kept.count += next.count;
        }
        joins
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_every_field() {
        let claim = Claim { ag: 1, start: 2, owner: 3 << 40, offset: 4 << 50, count: 5, notes: 6 };
        assert_eq!(Claim::from_bytes(&claim.to_bytes()), claim);
    }

    #[test]
    fn only_what_one_mapping_can_say_is_joined() {
        let of = |start, count, offset| Claim { ag: 0, start, owner: 9, offset, count, notes: 0 };
        let bmbt = rmap::BMBT_BLOCK;
        let mut claims = vec![of(0, 2, 7), of(2, 1, 9), of(3, 1, 11), of(4, 1, bmbt), of(5, 1, bmbt)];
        coalesce(&mut claims);
        assert_eq!(claims, [of(0, 3, 7), of(3, 1, 11), of(4, 2, bmbt)]);
    }
}
