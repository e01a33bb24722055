//! Intents over lists of extents, and all done items.
//!
//! | intent | contents | type |
//! |---|---|---|
//! | EFI | extents to free | [`FreeTarget`] |
//! | RUI | reverse mappings to change | [`MapTarget`] |
//! | CUI | extents whose reference count changes | [`CountTarget`] |
//! | BUI | one change of a file's extent map | [`MapTarget`] |

use base::{FileBlock, FsBlock};

use crate::damage::Damage;
use crate::ensure;
use crate::ondisk::{LeU16, LeU32, LeU64, OnDisk};

crate::ondisk! {
    /// The start of an intent's region; the extents follow.
    pub struct RawIntent("log intent", 16) {
        /// Item type.
        kind as "type": LeU16 = Hex,
        /// Number of regions: 1.
        size: LeU16 = Uint,
        /// Number of extents that follow.
        nextents: LeU32 = Uint,
        /// Id that links the done item to its intent.
        id: LeU64 = Hex,
    }

    /// The start of a done item's region; an EFD lists the extents again.
    pub struct RawDone("log done item", 16) {
        /// Item type.
        kind as "type": LeU16 = Hex,
        /// Number of regions: 1.
        size: LeU16 = Uint,
        /// Number of extents that follow; used by EFDs only.
        nextents: LeU32 = Uint,
        /// Id of the intent.
        id: LeU64 = Hex,
    }

    /// An extent to free, from a 64-bit writer.
    pub struct RawFree("extent to free", 16) {
        /// First block.
        start: LeU64 = Uint,
        /// Blocks.
        len: LeU32 = Uint,
        /// Undefined.
        pad: LeU32 = Padding,
    }

    /// An extent to free, from a 32-bit writer, which does not pad.
    pub struct RawFree32("extent to free (32-bit)", 12) {
        /// First block.
        start: LeU64 = Uint,
        /// Blocks.
        len: LeU32 = Uint,
    }

    /// A mapping to change, in an RUI or BUI.
    pub struct RawMap("mapping to change", 32) {
        /// Inode number, or a negative number for metadata.
        owner: LeU64 = Uint,
        /// First disk block.
        startblock: LeU64 = Uint,
        /// First logical block.
        startoff: LeU64 = Uint,
        /// Blocks.
        len: LeU32 = Uint,
        /// Operation, and flags in the upper bits.
        flags: LeU32 = Hex,
    }

    /// An extent whose reference count changes.
    pub struct RawCount("reference count to change", 16) {
        /// First block.
        startblock: LeU64 = Uint,
        /// Blocks.
        len: LeU32 = Uint,
        /// Operation.
        flags: LeU32 = Hex,
    }
}

/// Mask of the operation in `flags`.
const OPERATION_MASK: u32 = 0xff;

/// Reverse mappings: operations and flags.
pub mod rmap {
    /// Bits of `flags`.
    pub const FLAGS: &[(u32, &str)] =
        &[(1 << 31, "attr-fork"), (1 << 30, "bmbt-block"), (1 << 29, "unwritten")];
    /// Name of an operation.
    pub fn operation(code: u32) -> Option<&'static str> {
        Some(match code {
            1 => "map",
            2 => "map-shared",
            3 => "unmap",
            4 => "unmap-shared",
            5 => "convert",
            6 => "convert-shared",
            7 => "alloc",
            8 => "free",
            _ => return None,
        })
    }
}

/// Extent maps: operations and flags.
pub mod bmap {
    /// Operation: map blocks into a hole.
    pub const MAP: u32 = 1;
    /// Operation: unmap a range; its blocks stay allocated.
    pub const UNMAP: u32 = 2;
    /// Flag: attribute fork.
    pub const ATTR_FORK: u32 = 1 << 31;
    /// Flag: unwritten extent.
    pub const UNWRITTEN: u32 = 1 << 30;
    /// Flag: blocks of the realtime device.
    pub const REALTIME: u32 = 1 << 29;
    /// Bits of `flags`.
    pub const FLAGS: &[(u32, &str)] =
        &[(ATTR_FORK, "attr-fork"), (UNWRITTEN, "unwritten"), (REALTIME, "realtime")];
    /// Name of an operation.
    pub fn operation(code: u32) -> Option<&'static str> {
        Some(match code {
            MAP => "map",
            UNMAP => "unmap",
            _ => return None,
        })
    }
}

/// Reference counts: operations.
pub mod refcount {
    /// Name of an operation.
    pub fn operation(code: u32) -> Option<&'static str> {
        Some(match code {
            1 => "increase",
            2 => "decrease",
            3 => "alloc-cow",
            4 => "free-cow",
            _ => return None,
        })
    }
}

/// An extent to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeTarget {
    /// First block.
    pub start: FsBlock,
    /// Blocks.
    pub blocks: u32,
}

/// A mapping to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapTarget {
    /// Inode number or, as a negative number, a type of metadata (`btree::rmap::OWNER_*`).
    pub owner: u64,
    /// First disk block.
    pub start: FsBlock,
    /// First logical block.
    pub offset: FileBlock,
    /// Blocks.
    pub blocks: u32,
    /// Operation, and flags above the lower byte: see [`rmap`] and [`bmap`].
    pub flags: u32,
}

impl MapTarget {
    /// Number of the operation.
    pub fn operation(&self) -> u32 {
        self.flags & OPERATION_MASK
    }

    /// Appends the on-disk form.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.owner.to_le_bytes());
        out.extend_from_slice(&self.start.get().to_le_bytes());
        out.extend_from_slice(&self.offset.get().to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
    }
}

/// An extent whose reference count changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountTarget {
    /// First block.
    pub start: FsBlock,
    /// Blocks.
    pub blocks: u32,
    /// Operation: see [`refcount`].
    pub flags: u32,
}

impl CountTarget {
    /// Number of the operation.
    pub fn operation(&self) -> u32 {
        self.flags & OPERATION_MASK
    }
}

/// Id and count of an intent or done item over extents, and the bytes after its header.
fn split(region: &[u8]) -> Result<(u64, usize, &[u8]), Damage> {
    let raw = RawIntent::view(region)
        .ok_or_else(|| Damage::short(RawIntent::NAME, RawIntent::SIZE, region.len()))?;
    let rest = region.get(RawIntent::SIZE..).unwrap_or(&[]);
    Ok((raw.id.get(), raw.nextents.get() as usize, rest))
}

/// Views `count` extents, which must lie in the region.
fn list<T: OnDisk>(rest: &[u8], count: usize) -> Result<&[T], Damage> {
    // An item is one region, so an extent outside it was never written.
    T::view_array(rest, count).ok_or_else(|| {
        Damage::new(RawIntent::NAME, "nextents", format_args!("at most {}", rest.len() / T::SIZE), count)
    })
}

/// Decodes an EFI: its id and extents; its length determines the layout.
pub fn parse_free(region: &[u8]) -> Result<(u64, Vec<FreeTarget>), Damage> {
    let (id, count, rest) = split(region)?;
    let target = |start: LeU64, len: LeU32| FreeTarget { start: FsBlock(start.get()), blocks: len.get() };
    let narrow = count.checked_mul(RawFree32::SIZE).is_some_and(|bytes| bytes == rest.len());
    let wide = count.checked_mul(RawFree::SIZE).is_some_and(|bytes| bytes <= rest.len());
    let targets = if wide || !narrow {
        list::<RawFree>(rest, count)?.iter().map(|raw| target(raw.start, raw.len)).collect()
    } else {
        list::<RawFree32>(rest, count)?.iter().map(|raw| target(raw.start, raw.len)).collect()
    };
    Ok((id, targets))
}

/// Decodes an RUI or a BUI: its id and mappings.
pub fn parse_maps(region: &[u8]) -> Result<(u64, Vec<MapTarget>), Damage> {
    let (id, count, rest) = split(region)?;
    let target = |raw: &RawMap| MapTarget {
        owner: raw.owner.get(),
        start: FsBlock(raw.startblock.get()),
        offset: FileBlock(raw.startoff.get()),
        blocks: raw.len.get(),
        flags: raw.flags.get(),
    };
    Ok((id, list(rest, count)?.iter().map(target).collect()))
}

/// Decodes a CUI: its id and extents.
pub fn parse_counts(region: &[u8]) -> Result<(u64, Vec<CountTarget>), Damage> {
    let (id, count, rest) = split(region)?;
    let target = |raw: &RawCount| CountTarget {
        start: FsBlock(raw.startblock.get()),
        blocks: raw.len.get(),
        flags: raw.flags.get(),
    };
    Ok((id, list(rest, count)?.iter().map(target).collect()))
}

/// Decodes any done item: the id of its intent.
pub fn parse_done(region: &[u8]) -> Result<u64, Damage> {
    let raw =
        RawDone::view(region).ok_or_else(|| Damage::short(RawDone::NAME, RawDone::SIZE, region.len()))?;
    ensure!(raw.size.get() == 1, RawDone::NAME, "size", 1, raw.size);
    Ok(raw.id.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(count: u32) -> Vec<u8> {
        let mut bytes = vec![0x36, 0x12, 1, 0];
        bytes.extend(count.to_le_bytes());
        bytes.extend(0x99u64.to_le_bytes());
        bytes
    }

    #[test]
    fn the_length_determines_the_layout_of_freed_extents() {
        let (mut wide, mut narrow) = (head(2), head(2));
        for (start, len) in [(5u64, 1u32), (900, 7)] {
            for bytes in [&mut wide, &mut narrow] {
                bytes.extend(start.to_le_bytes());
                bytes.extend(len.to_le_bytes());
            }
            wide.extend([0xee; 4]);
        }
        let (id, targets) = parse_free(&wide).unwrap();
        assert_eq!((id, targets[1]), (0x99, FreeTarget { start: FsBlock(900), blocks: 7 }));
        assert_eq!(parse_free(&narrow).unwrap().1, targets);
    }

    #[test]
    fn more_extents_than_the_region_holds_are_refused_without_allocating() {
        for parse in [
            |b: &[u8]| parse_free(b).map(|_| ()),
            |b: &[u8]| parse_maps(b).map(|_| ()),
            |b: &[u8]| parse_counts(b).map(|_| ()),
        ] {
            assert_eq!(parse(&head(u32::MAX)).unwrap_err().field(), "nextents");
            assert!(parse(&[0; 15]).is_err());
            assert!(parse(&head(0)).is_ok());
        }
    }
}
