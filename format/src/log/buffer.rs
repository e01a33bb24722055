//! The buffer item: which chunks of 128 bytes of a buffer were changed, and then their bytes, one region for each run.

use base::Daddr;

use super::BLOCK_BYTES;
use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{LeU16, LeU32, LeU64, OnDisk};

/// Bytes of a chunk: one bit of the map.
pub const CHUNK_BYTES: usize = 128;
/// Bytes of the largest buffer.
pub const MAX_BYTES: usize = 64 << 10;
/// Words of the largest map: a bit for each chunk, and one word that only pads.
const MAX_MAP_WORDS: usize = MAX_BYTES / CHUNK_BYTES / 32 + 1;
const NAME: &str = "buffer log format";

crate::ondisk! {
    /// What a buffer item's first region begins with; the words of the map follow.
    pub struct RawBufferFormat("buffer log format", 20) {
        /// `0x123c`.
        kind as "type": LeU16 = Hex,
        /// Regions of the item.
        size: LeU16 = Uint,
        /// Flags, and in the upper five bits what the buffer holds.
        flags: LeU16 = Hex,
        /// Sectors of 512 bytes.
        len: LeU16 = Uint,
        /// Disk address.
        blkno: LeU64 = Uint,
        /// Words of the map.
        map_size: LeU32 = Uint,
    }
}

/// Bits of `flags`.
pub mod flags {
    /// Only the links of unlinked inodes count.
    pub const INODE_BUFFER: u16 = 1 << 0;
    /// The buffer was freed: nothing logged before may be replayed into it.
    pub const CANCEL: u16 = 1 << 1;
    /// User quota.
    pub const USER_QUOTA: u16 = 1 << 2;
    /// Project quota.
    pub const PROJECT_QUOTA: u16 = 1 << 3;
    /// Group quota.
    pub const GROUP_QUOTA: u16 = 1 << 4;
    /// Any quota.
    pub const QUOTA: u16 = USER_QUOTA | PROJECT_QUOTA | GROUP_QUOTA;
    /// Every bit with its name.
    pub const ALL: &[(u16, &str)] = &[
        (INODE_BUFFER, "inode"),
        (CANCEL, "cancel"),
        (USER_QUOTA, "user-quota"),
        (PROJECT_QUOTA, "project-quota"),
        (GROUP_QUOTA, "group-quota"),
    ];
    /// Where the kind of buffer begins.
    pub const KIND_SHIFT: u16 = 11;
}

macro_rules! buffer_kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal $words:literal,)*) => {
        /// What a buffer holds, so that recovery knows where its checksum lies.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum BufferKind {
            $( $(#[$doc])* $name, )*
            /// A number that no writer uses.
            Other(u8),
        }

        impl BufferKind {
            /// The kind of a number.
            pub fn from_code(code: u8) -> Self {
                match code { $($code => Self::$name,)* other => Self::Other(other) }
            }

            /// The number on disk.
            pub fn code(self) -> u8 {
                match self { $(Self::$name => $code,)* Self::Other(code) => code }
            }

            /// In words.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* Self::Other(_) => "unknown kind" }
            }
        }
    };
}

buffer_kinds! {
    /// Not told: so are cancelled buffers.
    Untold = 0 "not told",
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
    /// A directory of one block.
    DirBlock = 10 "directory block",
    /// A directory's data block.
    DirData = 11 "directory data",
    /// A directory's free space block.
    DirFree = 12 "directory free index",
    /// A directory's only leaf.
    DirLeaf1 = 13 "directory leaf",
    /// One of a directory's leaves.
    DirLeafN = 14 "directory leaf under a node",
    /// A node of a directory or of attributes.
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
    /// Sectors of 512 bytes; 0 to 128.
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

    /// Bytes of the buffer.
    pub fn bytes(&self) -> usize {
        usize::from(self.sectors) * BLOCK_BYTES
    }

    /// What it holds.
    pub fn kind(&self) -> BufferKind {
        BufferKind::from_code((self.flags >> flags::KIND_SHIFT) as u8)
    }

    /// The buffer was freed.
    pub fn is_cancel(&self) -> bool {
        self.flags & flags::CANCEL != 0
    }

    /// Only the links of unlinked inodes count.
    pub fn is_inode_buffer(&self) -> bool {
        self.flags & flags::INODE_BUFFER != 0
    }

    /// Whether it holds quota records.
    pub fn is_quota(&self) -> bool {
        use BufferKind::{GroupQuota, ProjectQuota, UserQuota};
        self.flags & flags::QUOTA != 0 || matches!(self.kind(), UserQuota | ProjectQuota | GroupQuota)
    }

    /// The runs of changed chunks, in order.
    pub fn runs(&self) -> DirtyRanges<'a> {
        DirtyRanges { map: self.map, bit: 0 }
    }
}

/// A run of changed bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyRange {
    /// Bytes from the start of the buffer: a multiple of [`CHUNK_BYTES`].
    pub start: usize,
    /// Bytes: a multiple of [`CHUNK_BYTES`].
    pub len: usize,
}

impl DirtyRange {
    /// The byte behind the last.
    pub fn end(&self) -> usize {
        self.start + self.len
    }
}

/// Walks the runs of set bits of a map.
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
    fn runs_cross_words_and_end_with_the_map() {
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
    fn kinds_keep_their_numbers() {
        for code in 0..32 {
            assert_eq!(BufferKind::from_code(code).code(), code);
        }
    }
}
