//! The intent to exchange ranges of two files.

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
        /// Id that links the done item to its intent.
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
        /// Flags.
        flags: LeU64 = Hex,
        /// Size of the first file after the exchange.
        isize1: LeU64 = Uint,
        /// Size of the second file after the exchange.
        isize2: LeU64 = Uint,
    }
}

/// Bits of `flags`.
pub mod flags {
    /// Exchange the attribute forks.
    pub const ATTR_FORK: u64 = 1 << 0;
    /// Set the file sizes given in the intent.
    pub const SET_SIZES: u64 = 1 << 1;
    /// Skip ranges that are holes or unwritten in the first file.
    pub const WRITTEN_ONLY: u64 = 1 << 2;
    /// Clear the reflink flag of the first file at the end.
    pub const CLEAR_REFLINK_1: u64 = 1 << 3;
    /// Clear the reflink flag of the second file at the end.
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
    /// Id that links the done item to its intent.
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
    /// File sizes in bytes after the exchange.
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
