//! Log items as bytes: each is a list of regions.

use base::Lsn;
use format::btree::{BnoBt, Btree, ShortHeader};
use format::inode::{MAGIC, RawInode, S_IFMT};
use format::log::buffer::{BufferKind, RawBufferFormat, flags};
use format::log::inode::{RawInodeFormat, RawLogInode, fields};
use format::log::item::ItemType;
use format::metadata_header::HeaderLayout;
use format::ondisk::{LeU16, LeU32, LeU64, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::volume::UUID;

pub type Item = Vec<Vec<u8>>;

/// The changed chunks of a buffer: index of the chunk, and its 128 bytes (or several chunks in one).
pub fn buffer(
    daddr: u64,
    sectors: u16,
    kind: BufferKind,
    more_flags: u16,
    chunks: &[(usize, Vec<u8>)],
) -> Item {
    let words = usize::from(sectors) * 4 / 32 + 1;
    let mut map = vec![0u32; words];
    for (chunk, bytes) in chunks {
        for bit in *chunk..chunk + bytes.len() / 128 {
            map[bit / 32] |= 1 << (bit % 32);
        }
    }
    let format = RawBufferFormat {
        kind: LeU16::new(ItemType::Buffer.code()),
        size: LeU16::new(chunks.len() as u16 + 1),
        flags: LeU16::new(more_flags | u16::from(kind.code()) << flags::KIND_SHIFT),
        len: LeU16::new(sectors),
        blkno: LeU64::new(daddr),
        map_size: LeU32::new(words as u32),
    };
    let mut first = format.as_bytes().to_vec();
    first.extend(map.iter().flat_map(|word| word.to_le_bytes()));
    std::iter::once(first).chain(chunks.iter().map(|(_, bytes)| bytes.clone())).collect()
}

pub fn cancel(daddr: u64, sectors: u16) -> Item {
    buffer(daddr, sectors, BufferKind::Unknown, flags::CANCEL, &[])
}

/// A block of the free space tree whose body is filled with a byte, sealed with an LSN.
pub fn block(daddr: u64, fill: u8, lsn: Lsn) -> Vec<u8> {
    let mut block = vec![fill; 4096];
    let header = ShortHeader {
        magic: U32::new(BnoBt::MAGIC),
        bno: U64::new(daddr),
        uuid: UUID,
        ..ShortHeader::new_zeroed()
    };
    block[..size_of::<ShortHeader>()].copy_from_slice(header.as_bytes());
    assert!(HeaderLayout::of(&block).unwrap().seal(&mut block, lsn));
    block
}

/// A complete such block as an item.
pub fn whole_block(daddr: u64, fill: u8) -> Item {
    buffer(daddr, 8, BufferKind::Btree, 0, &[(0, block(daddr, fill, Lsn(0)))])
}

/// One chunk in the body of such a block.
pub fn block_chunk(daddr: u64, chunk: usize, fill: u8) -> Item {
    buffer(daddr, 8, BufferKind::Btree, 0, &[(chunk, vec![fill; 128])])
}

/// A logged inode core: a regular file with extents.
pub fn log_core(ino: u64, size: u64) -> RawLogInode {
    RawLogInode {
        magic: LeU16::new(MAGIC),
        mode: LeU16::new(0o100_644 & (S_IFMT | 0o777)),
        version: 3,
        format: 2,
        nlink: LeU32::new(1),
        size: LeU64::new(size),
        aformat: 2,
        ino: LeU64::new(ino),
        uuid: UUID,
        next_unlinked: LeU32::new(77),
        lsn: LeU64::new(u64::MAX - 5),
        ..RawLogInode::new_zeroed()
    }
}

/// An inode in the chunk at block 16 (inodes 128 to 191), whose buffers are 32 sectors long.
pub fn inode(core: &RawLogInode, more_fields: u32, forks: &[Vec<u8>]) -> Item {
    let ino = core.ino.get();
    let slot = ino - 128;
    let mut format = RawInodeFormat::new_zeroed();
    format.kind = LeU16::new(ItemType::Inode.code());
    format.size = LeU16::new(2 + forks.len() as u16);
    format.fields = LeU32::new(fields::CORE | more_fields);
    format.dsize = LeU16::new(forks.first().map_or(0, |fork| fork.len() as u16));
    format.ino = LeU64::new(ino);
    format.blkno = LeU64::new(128 + slot / 32 * 32);
    format.len = LeU32::new(32);
    format.boffset = LeU32::new((slot % 32 * 512) as u32);
    let mut regions = vec![format.as_bytes().to_vec(), core.as_bytes().to_vec()];
    regions.extend(forks.iter().cloned());
    regions
}

/// A free inode on disk, sealed.
pub fn free_slot(ino: u64, lsn: Lsn) -> Vec<u8> {
    let core = RawInode {
        magic: format::ondisk::U16::new(MAGIC),
        version: 3,
        next_unlinked: U32::new(u32::MAX),
        lsn: U64::new(lsn.get()),
        ino: U64::new(ino),
        uuid: UUID,
        ..RawInode::new_zeroed()
    };
    let mut slot = core.as_bytes().to_vec();
    slot.resize(512, 0);
    format::checksum::store(&mut slot, format::inode::CRC_OFFSET);
    slot
}

/// A chunk of new inodes at an AG block.
pub fn icreate(block: u32, count: u32, generation: u32) -> Item {
    let mut bytes = ItemType::InodeCreate.code().to_le_bytes().to_vec();
    bytes.extend(1u16.to_le_bytes());
    for word in [0, block, count, 512, count / 8, generation] {
        bytes.extend(word.to_be_bytes());
    }
    vec![bytes]
}

/// An intent or done item with extents, each given as bytes.
pub fn intent(kind: ItemType, id: u64, extents: &[Vec<u8>]) -> Item {
    let mut bytes = kind.code().to_le_bytes().to_vec();
    bytes.extend(1u16.to_le_bytes());
    bytes.extend((extents.len() as u32).to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(extents.concat());
    vec![bytes]
}

/// A mapping of an RUI or BUI.
pub fn mapping(owner: u64, start: u64, offset: u64, blocks: u32, flags: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = [owner, start, offset].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(blocks.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}
