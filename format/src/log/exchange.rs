//! The intent of exchanging ranges of two files.

use base::{FileBlock, Ino};

use crate::damage::Damage;
use crate::ondisk::{LeU16, LeU32, LeU64, OnDisk};

crate::ondisk! {
    /// The item's only region.
    pub struct RawExchange("range exchange intent", 88) {
        /// `0x1248`.
        kind as "type": LeU16 = Hex,
        /// 1.
        size: LeU16 = Uint,
        /// Zero.
        pad: LeU32 = Padding,
        /// Ties the done item to its intent.
        id: LeU64 = Hex,
        /// First file.
        inode1: LeU64 = Uint,
        /// Second file.
        inode2: LeU64 = Uint,
        /// Generation of the first.
        igen1: LeU32 = Uint,
        /// Generation of the second.
        igen2: LeU32 = Uint,
        /// First logical block in the first file.
        startoff1: LeU64 = Uint,
        /// First logical block in the second file.
        startoff2: LeU64 = Uint,
        /// Blocks.
        blockcount: LeU64 = Uint,
        /// How.
        flags: LeU64 = Hex,
        /// Size of the first file when done.
        isize1: LeU64 = Uint,
        /// Size of the second file when done.
        isize2: LeU64 = Uint,
    }
}

/// Bits of `flags`.
pub mod flags {
    /// The attribute forks are exchanged.
    pub const ATTR_FORK: u64 = 1 << 0;
    /// The files get the sizes that the intent tells.
    pub const SET_SIZES: u64 = 1 << 1;
    /// What the first file has not written (holes, unwritten extents) stays where it is.
    pub const WRITTEN_ONLY: u64 = 1 << 2;
    /// In the end the first file shares no blocks any more.
    pub const CLEAR_REFLINK_1: u64 = 1 << 3;
    /// In the end the second file shares no blocks any more.
    pub const CLEAR_REFLINK_2: u64 = 1 << 4;
    /// Every bit with its name.
    pub const ALL: &[(u64, &str)] = &[
        (ATTR_FORK, "attr-fork"),
        (SET_SIZES, "set-sizes"),
        (WRITTEN_ONLY, "written-only"),
        (CLEAR_REFLINK_1, "clear-reflink-1"),
        (CLEAR_REFLINK_2, "clear-reflink-2"),
    ];
}

/// A decoded range exchange intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeIntent {
    /// Ties the done item to its intent.
    pub id: u64,
    /// The two files.
    pub files: [Ino; 2],
    /// Their generations.
    pub generations: [u32; 2],
    /// First logical block in each.
    pub offsets: [FileBlock; 2],
    /// Blocks.
    pub blocks: u64,
    /// See [`flags`].
    pub flags: u64,
    /// Sizes in bytes when done.
    pub sizes: [u64; 2],
}

impl ExchangeIntent {
    /// Decodes the item's only region.
    pub fn parse(region: &[u8]) -> Result<Self, Damage> {
        let raw = RawExchange::view(region)
            .ok_or_else(|| Damage::short(RawExchange::NAME, RawExchange::SIZE, region.len()))?;
        Ok(Self {
            id: raw.id.get(),
            files: [Ino(raw.inode1.get()), Ino(raw.inode2.get())],
            generations: [raw.igen1.get(), raw.igen2.get()],
            offsets: [FileBlock(raw.startoff1.get()), FileBlock(raw.startoff2.get())],
            blocks: raw.blockcount.get(),
            flags: raw.flags.get(),
            sizes: [raw.isize1.get(), raw.isize2.get()],
        })
    }
}
