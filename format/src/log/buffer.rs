//! The buffer item: a bitmap of the dirty 128-byte chunks of a buffer, followed by one region for each contiguous range
//! of them.

use base::Daddr;

use super::BLOCK_BYTES;
use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{LeU16, LeU32, LeU64, OnDisk};

/// Size of a chunk in bytes: one bit of the bitmap.
pub const CHUNK_BYTES: usize = 128;
/// Maximum size of a buffer in bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Maximum number of words of the bitmap: a bit for each chunk, and one word of padding.
const MAX_MAP_WORDS: usize = MAX_BYTES / CHUNK_BYTES / 32 + 1;
const NAME: &str = "buffer log format";

crate::ondisk! {
    /// The start of the item's first region; the words of the bitmap follow.
    pub struct RawBufferFormat("buffer log format", 20) {
        /// `0x123c`.
        kind as "type": LeU16 = Hex,
        /// Number of regions.
        size: LeU16 = Uint,
        /// Flags; the upper five bits are the buffer type.
        flags: LeU16 = Hex,
        /// Length in sectors of 512 bytes.
        len: LeU16 = Uint,
        /// Disk address.
        blkno: LeU64 = Uint,
        /// Number of words of the bitmap.
        map_size: LeU32 = Uint,
    }
}

/// Bits of `flags`.
pub mod flags {
    /// Only the unlinked list pointers of inodes were logged.
    pub const INODE_BUFFER: u16 = 1 << 0;
    /// The buffer was freed: earlier items must not be replayed into it.
    pub const CANCEL: u16 = 1 << 1;
    /// User quota.
    pub const USER_QUOTA: u16 = 1 << 2;
    /// Project quota.
    pub const PROJECT_QUOTA: u16 = 1 << 3;
    /// Group quota.
    pub const GROUP_QUOTA: u16 = 1 << 4;
    /// Any quota type.
    pub const QUOTA: u16 = USER_QUOTA | PROJECT_QUOTA | GROUP_QUOTA;
    /// Every bit with its name.
    pub const ALL: &[(u16, &str)] = &[
        (INODE_BUFFER, "inode"),
        (CANCEL, "cancel"),
        (USER_QUOTA, "user-quota"),
        (PROJECT_QUOTA, "project-quota"),
        (GROUP_QUOTA, "group-quota"),
    ];
    /// Shift of the buffer type.
    pub const KIND_SHIFT: u16 = 11;
}

macro_rules! buffer_kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal $words:literal,)*) => {
        /// Buffer type, which tells recovery how to verify and checksum the buffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum BufferKind {
            $( $(#[$doc])* $name, )*
            /// A number that no writer uses.
            Other(u8),
        }

        impl BufferKind {
            /// Decodes the buffer type.
            pub fn from_code(code: u8) -> Self {
                match code { $($code => Self::$name,)* other => Self::Other(other) }
            }

            /// The number on disk.
            pub fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* Self::Other(code) => code }
            }

            /// Description for messages.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* Self::Other(_) => "unknown kind" }
            }
        }
    };
}

buffer_kinds! {
    /// Unknown; used for cancelled buffers.
    Unknown = 0 "unknown",
    /// User quota records.
    UserQuota = 1 "user quota",
    /// Project quota records.
    ProjectQuota = 2 "project quota",
    /// Group quota records.
    GroupQuota = 3 "group quota",
    /// A block of any B+tree.
    Btree = 4 "B+tree block",
    /// AGF.
    Agf = 5 "AGF",
    /// AGFL.
    Agfl = 6 "AGFL",
    /// AGI.
    Agi = 7 "AGI",
    /// Inodes.
    Inodes = 8 "inodes",
    /// A remote symlink.
    Symlink = 9 "symlink",
    /// A block-format directory.
    DirBlock = 10 "directory block",
    /// A directory's data block.
    DirData = 11 "directory data",
    /// A free-index block of a directory.
    DirFree = 12 "directory free index",
    /// A `LEAF1` block.
    DirLeaf1 = 13 "directory leaf",
    /// A `LEAFN` block.
    DirLeafN = 14 "directory leaf under a node",
    /// A dabtree node.
    DaNode = 15 "directory/attribute node",
    /// An attribute leaf.
    AttrLeaf = 16 "attribute leaf",
    /// A remote attribute value.
    AttrRemote = 17 "remote attribute value",
    /// A superblock.
    Superblock = 18 "superblock",
    /// Realtime bitmap.
    RealtimeBitmap = 19 "realtime bitmap",
    /// Realtime summary.
    RealtimeSummary = 20 "realtime summary",
}

/// A decoded buffer format.
#[derive(Clone, Copy, Debug)]
pub struct BufferFormat<'a> {
    /// Disk address of the buffer.
    pub daddr: Daddr,
    /// Length in sectors of 512 bytes; 0 to 128.
    pub sectors: u16,
    /// See [`flags`].
    pub flags: u16,
    map: &'a [LeU32],
}

impl<'a> BufferFormat<'a> {
    /// Decodes a buffer item's first region.
    pub fn parse(region: &'a [u8]) -> Result<Self, Damage> {
        let short = |need| Damage::short(NAME, need, region.len());
        let raw = RawBufferFormat::view(region).ok_or_else(|| short(RawBufferFormat::SIZE))?;
        let words = raw.map_size.get() as usize;
        ensure!(words <= MAX_MAP_WORDS, NAME, "map_size", format_args!("at most {MAX_MAP_WORDS}"), words);
        let rest = region.get(RawBufferFormat::SIZE..).unwrap_or(&[]);
        let map = LeU32::view_array(rest, words).ok_or_else(|| short(RawBufferFormat::SIZE + words * 4))?;
        let sectors = raw.len.get();
        let most = MAX_BYTES / BLOCK_BYTES;
        ensure!(usize::from(sectors) <= most, NAME, "len", format_args!("at most {most} sectors"), sectors);
        let format = Self { daddr: Daddr(raw.blkno.get()), sectors, flags: raw.flags.get(), map };
        let beyond = format.runs().last().is_some_and(|run| run.end() > format.bytes());
        ensure!(
            !beyond,
            NAME,
            "data_map",
            format_args!("bits within {} bytes", format.bytes()),
            "bits beyond"
        );
        Ok(format)
    }

    /// Size of the buffer in bytes.
    pub fn bytes(&self) -> usize {
        usize::from(self.sectors) * BLOCK_BYTES
    }

    /// Buffer type.
    pub fn kind(&self) -> BufferKind {
        BufferKind::from_code((self.flags >> flags::KIND_SHIFT) as u8)
    }

    /// Whether the buffer was freed.
    pub fn is_cancel(&self) -> bool {
        self.flags & flags::CANCEL != 0
    }

    /// Whether only the unlinked list pointers of inodes were logged.
    pub fn is_inode_buffer(&self) -> bool {
        self.flags & flags::INODE_BUFFER != 0
    }

    /// Whether it holds quota records.
    pub fn is_quota(&self) -> bool {
        use BufferKind::{GroupQuota, ProjectQuota, UserQuota};
        self.flags & flags::QUOTA != 0 || matches!(self.kind(), UserQuota | ProjectQuota | GroupQuota)
    }

    /// The dirty ranges in order.
    pub fn runs(&self) -> DirtyRanges<'a> {
        DirtyRanges { map: self.map, bit: 0 }
    }
}

/// A contiguous range of dirty bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyRange {
    /// Start offset: a multiple of [`CHUNK_BYTES`].
    pub start: usize,
    /// Length in bytes: a multiple of [`CHUNK_BYTES`].
    pub len: usize,
}

impl DirtyRange {
    /// End offset.
    pub fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Iterator over the runs of set bits of a bitmap.
#[derive(Clone, Debug)]
pub struct DirtyRanges<'a> {
    map: &'a [LeU32],
    bit: usize,
}

impl DirtyRanges<'_> {
    fn is_set(&self, bit: usize) -> Option<bool> {
        self.map.get(bit / 32).map(|word| word.get() >> (bit % 32) & 1 != 0)
    }
}

impl Iterator for DirtyRanges<'_> {
    type Item = DirtyRange;

    fn next(&mut self) -> Option<DirtyRange> {
        while !self.is_set(self.bit)? {
            self.bit += 1;
        }
        let first = self.bit;
        while self.is_set(self.bit) == Some(true) {
            self.bit += 1;
        }
        Some(DirtyRange { start: first * CHUNK_BYTES, len: (self.bit - first) * CHUNK_BYTES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(sectors: u16, flags: u16, map: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0x3c, 0x12, 2, 0];
        bytes.extend(flags.to_le_bytes());
        bytes.extend(sectors.to_le_bytes());
        bytes.extend(0x20u64.to_le_bytes());
        bytes.extend((map.len() as u32).to_le_bytes());
        map.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes
    }

    #[test]
    fn dirty_ranges_cross_words_and_end_with_the_map() {
        let bytes = region(128, 0x2000, &[0x8000_0001, 1, 0, 0x8000_0000]);
        let format = BufferFormat::parse(&bytes).unwrap();
        let runs: Vec<_> = format.runs().map(|run| (run.start / 128, run.len / 128)).collect();
        assert_eq!(runs, [(0, 1), (31, 2), (127, 1)]);
        assert_eq!(format.kind(), BufferKind::Btree);
        assert_eq!(format.daddr, Daddr(0x20));
    }

    #[test]
    fn bits_beyond_the_buffer_are_refused() {
        assert_eq!(BufferFormat::parse(&region(1, 0, &[0x10])).unwrap_err().field(), "data_map");
        assert!(BufferFormat::parse(&region(1, 0, &[0xf])).is_ok());
        assert_eq!(BufferFormat::parse(&region(129, 0, &[])).unwrap_err().field(), "len");
        assert_eq!(BufferFormat::parse(&region(8, 0, &[0; 18])).unwrap_err().field(), "map_size");
        assert_eq!(BufferFormat::parse(&region(8, 0, &[0; 2])[..24]).unwrap_err().field(), "length");
    }

    #[test]
    fn buffer_types_keep_their_numbers() {
        for code in 0..32 {
            assert_eq!(BufferKind::from_code(code).code(), code);
        }
    }
}
