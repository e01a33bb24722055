//! The inode item: a format, the core in the writer's byte order, and the changed parts of the forks.
//!
//! | part | subject |
//! |---|---|
//! | [`InodeFormat`] | decodes both layouts of the format |
//! | [`RawLogInode`] | the logged core, and its conversion to the on-disk form |
//! | [`root_to_disk`] | converts a bmbt root from its logged form to the shorter on-disk form |

use base::{Daddr, Ino, Lsn};

use super::BLOCK_BYTES;
use crate::btree::{BmapKey, BmapRoot, LongHeader};
use crate::damage::Damage;
use crate::ensure;
use crate::inode::{self, RawInode};
use crate::ondisk::{LeU16, LeU32, LeU64, OnDisk, U16, U32, U64};

const NAME: &str = "inode log format";

crate::ondisk! {
    /// The item's first region, from a 64-bit writer.
    pub struct RawInodeFormat("inode log format", 56) {
        /// `0x123b`.
        kind as "type": LeU16 = Hex,
        /// Number of regions.
        size: LeU16 = Uint,
        /// Logged parts.
        fields: LeU32 = Hex,
        /// Length of the attribute fork region.
        asize: LeU16 = Uint,
        /// Length of the data fork region.
        dsize: LeU16 = Uint,
        /// Zero.
        pad: LeU32 = Padding,
        /// The inode.
        ino: LeU64 = Uint,
        /// Device number of a special file.
        rdev: LeU32 = Hex,
        /// Unused.
        unused: [u8; 12] = Padding,
        /// Disk address of the buffer that holds the inode.
        blkno: LeU64 = Uint,
        /// Length of that buffer in sectors.
        len: LeU32 = Uint,
        /// Byte offset of the inode in that buffer.
        boffset: LeU32 = Uint,
    }

    /// The item's first region from a 32-bit writer, which does not pad.
    pub struct RawInodeFormat32("inode log format (32-bit)", 52) {
        /// `0x123b`.
        kind as "type": LeU16 = Hex,
        /// Number of regions.
        size: LeU16 = Uint,
        /// Logged parts.
        fields: LeU32 = Hex,
        /// Length of the attribute fork region.
        asize: LeU16 = Uint,
        /// Length of the data fork region.
        dsize: LeU16 = Uint,
        /// The inode.
        ino: LeU64 = Uint,
        /// Device number of a special file.
        rdev: LeU32 = Hex,
        /// Unused.
        unused: [u8; 12] = Padding,
        /// Disk address of the buffer that holds the inode.
        blkno: LeU64 = Uint,
        /// Length of that buffer in sectors.
        len: LeU32 = Uint,
        /// Byte offset of the inode in that buffer.
        boffset: LeU32 = Uint,
    }

    /// The logged core: the fields of [`RawInode`] at the same offsets, in the writer's byte order.
    pub struct RawLogInode("logged inode core", 176) {
        /// `IN`.
        magic: LeU16 = Hex,
        /// File type and permissions.
        mode: LeU16 = Octal,
        /// 3.
        version: u8 = Uint,
        /// Format of the data fork.
        format: u8 = Uint,
        /// With metadata directories, the type of a metadata inode.
        metatype: LeU16 = Uint,
        /// Owner.
        uid: LeU32 = Uint,
        /// Group.
        gid: LeU32 = Uint,
        /// Link count.
        nlink: LeU32 = Uint,
        /// Lower half of the project id.
        projid_lo: LeU16 = Uint,
        /// Upper half of the project id.
        projid_hi: LeU16 = Uint,
        /// Extents of the data fork, where `nrext64` is set.
        big_nextents: LeU64 = Uint,
        /// Access time (atime).
        atime: LeU64 = Hex,
        /// Modification time (mtime).
        mtime: LeU64 = Hex,
        /// Inode change time (ctime).
        ctime: LeU64 = Hex,
        /// Size in bytes.
        size: LeU64 = Uint,
        /// Blocks.
        nblocks: LeU64 = Uint,
        /// Extent size hint in blocks.
        extsize: LeU32 = Uint,
        /// Extents of the data fork; with `nrext64`, those of the attribute fork.
        nextents: LeU32 = Uint,
        /// Extents of the attribute fork; with `nrext64`, zero.
        anextents: LeU16 = Uint,
        /// Offset of the attribute fork in 8-byte units.
        forkoff: u8 = Uint,
        /// Format of the attribute fork.
        aformat: u8 = Uint,
        /// Unused.
        dmevmask: LeU32 = Hex,
        /// Unused.
        dmstate: LeU16 = Hex,
        /// Flags.
        flags: LeU16 = Hex,
        /// Generation.
        generation as "gen": LeU32 = Uint,
        /// Not replayed: the unlinked list pointer is logged in buffer items.
        next_unlinked: LeU32 = Nullable,
        /// Not to be replayed.
        crc: LeU32 = Hex,
        /// Change counter.
        changecount: LeU64 = Uint,
        /// Not replayed: not the LSN of the inode.
        lsn: LeU64 = Lsn,
        /// More flags.
        flags2: LeU64 = Hex,
        /// Extent size hint of copy-on-write, in blocks.
        cowextsize: LeU32 = Uint,
        /// Zero.
        pad2: [u8; 12] = Padding,
        /// Creation time (crtime).
        crtime: LeU64 = Hex,
        /// Inode number.
        ino: LeU64 = Uint,
        /// The volume's metadata UUID.
        uuid: [u8; 16] = Uuid,
    }
}

/// Bits of `fields`.
pub mod fields {
    /// The core.
    pub const CORE: u32 = 0x001;
    /// Inline data.
    pub const DATA_LOCAL: u32 = 0x002;
    /// Extents of the data fork.
    pub const DATA_EXTENTS: u32 = 0x004;
    /// Root of the data fork's bmbt.
    pub const DATA_ROOT: u32 = 0x008;
    /// Device number.
    pub const DEVICE: u32 = 0x010;
    /// Never used.
    pub const UUID: u32 = 0x020;
    /// Inline attributes.
    pub const ATTR_LOCAL: u32 = 0x040;
    /// Extents of the attribute fork.
    pub const ATTR_EXTENTS: u32 = 0x080;
    /// Root of the attribute fork's bmbt.
    pub const ATTR_ROOT: u32 = 0x100;
    /// Set the owner of the data fork's bmbt blocks to this inode.
    pub const DATA_OWNER: u32 = 0x200;
    /// Set the owner of the attribute fork's bmbt blocks to this inode.
    pub const ATTR_OWNER: u32 = 0x400;
    /// A region for the data fork follows.
    pub const DATA: u32 = DATA_LOCAL | DATA_EXTENTS | DATA_ROOT;
    /// A region for the attribute fork follows.
    pub const ATTR: u32 = ATTR_LOCAL | ATTR_EXTENTS | ATTR_ROOT;
    /// Every bit with its name.
    pub const ALL: &[(u32, &str)] = &[
        (CORE, "core"),
        (DATA_LOCAL, "data-local"),
        (DATA_EXTENTS, "data-extents"),
        (DATA_ROOT, "data-root"),
        (DEVICE, "device"),
        (UUID, "uuid"),
        (ATTR_LOCAL, "attr-local"),
        (ATTR_EXTENTS, "attr-extents"),
        (ATTR_ROOT, "attr-root"),
        (DATA_OWNER, "data-owner"),
        (ATTR_OWNER, "attr-owner"),
    ];
}

/// A decoded inode format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeFormat {
    /// The inode.
    pub ino: Ino,
    /// See [`fields`].
    pub fields: u32,
    /// Number of regions: 2 to 4.
    pub regions: u16,
    /// Number of logged bytes of the data fork.
    pub data_bytes: u16,
    /// Number of logged bytes of the attribute fork.
    pub attr_bytes: u16,
    /// Device number of a special file.
    pub rdev: u32,
    /// Disk address of the buffer that holds the inode.
    pub daddr: Daddr,
    /// Length of that buffer in sectors: at most 128.
    pub sectors: u16,
    /// Byte offset of the inode in that buffer, within its length.
    pub offset: u32,
}

impl InodeFormat {
    /// Decodes the item's first region; its length determines the layout.
    pub fn parse(region: &[u8]) -> Result<Self, Damage> {
        let (wide, narrow) = (RawInodeFormat::SIZE, RawInodeFormat32::SIZE);
        macro_rules! take {
            ($raw:ident) => {{
                let raw = $raw::view(region).ok_or_else(|| Damage::short(NAME, narrow, region.len()))?;
                let (sectors, offset) = (raw.len.get(), raw.boffset.get());
                Self {
                    ino: Ino(raw.ino.get()),
                    fields: raw.fields.get(),
                    regions: raw.size.get(),
                    data_bytes: raw.dsize.get(),
                    attr_bytes: raw.asize.get(),
                    rdev: raw.rdev.get(),
                    daddr: Daddr(raw.blkno.get()),
                    sectors: u16::try_from(sectors)
                        .map_err(|_| Damage::new(NAME, "len", "at most 128 sectors", sectors))?,
                    offset,
                }
            }};
        }
        let format = if region.len() >= wide { take!(RawInodeFormat) } else { take!(RawInodeFormat32) };
        format.verify()?;
        Ok(format)
    }

    fn verify(&self) -> Result<(), Damage> {
        ensure!((1..=128).contains(&self.sectors), NAME, "len", "1 to 128 sectors", self.sectors);
        let bytes = usize::from(self.sectors) * BLOCK_BYTES;
        let inside = (self.offset as usize).checked_add(RawInode::SIZE).is_some_and(|end| end <= bytes);
        ensure!(inside, NAME, "boffset", format_args!("an inode within {bytes} bytes"), self.offset);
        ensure!(
            self.fields & fields::CORE != 0,
            NAME,
            "fields",
            "the core",
            format_args!("{:#x}", self.fields)
        );
        for fork in [fields::DATA, fields::ATTR] {
            let bits = self.fields & fork;
            ensure!(
                bits.count_ones() <= 1,
                NAME,
                "fields",
                "one form per fork",
                format_args!("{:#x}", self.fields)
            );
        }
        let least = 2 + [fields::DATA, fields::ATTR].iter().filter(|fork| self.fields & **fork != 0).count();
        ensure!(
            usize::from(self.regions) >= least,
            NAME,
            "size",
            format_args!("at least {least}"),
            self.regions
        );
        Ok(())
    }

    /// Index of the region with the data fork, if there is one.
    pub fn data_region(&self) -> Option<usize> {
        (self.fields & fields::DATA != 0).then_some(2)
    }

    /// Index of the region with the attribute fork, if there is one.
    pub fn attr_region(&self) -> Option<usize> {
        (self.fields & fields::ATTR != 0).then_some(if self.fields & fields::DATA != 0 { 3 } else { 2 })
    }
}

impl RawLogInode {
    /// The on-disk core after replay: the logged fields with LSN `lsn`, and the unlinked list pointer of `old`, the
    /// current core. The caller sets the checksum of the whole inode.
    pub fn to_disk(&self, old: &RawInode, lsn: Lsn) -> RawInode {
        let flags2 = self.flags2.get();
        let wide_times = flags2 & inode::flags2::BIGTIME != 0;
        let time = |raw: LeU64| disk_time(raw.get(), wide_times);
        let wide_counts = flags2 & inode::flags2::NREXT64 != 0;
        let is_metadata = flags2 & inode::flags2::METADATA != 0;
        RawInode {
            magic: U16::new(self.magic.get()),
            mode: U16::new(self.mode.get()),
            version: self.version,
            format: self.format,
            onlink: U16::new(if is_metadata { self.metatype.get() } else { 0 }),
            uid: U32::new(self.uid.get()),
            gid: U32::new(self.gid.get()),
            nlink: U32::new(self.nlink.get()),
            projid_lo: U16::new(self.projid_lo.get()),
            projid_hi: U16::new(self.projid_hi.get()),
            big_nextents: U64::new(if wide_counts { self.big_nextents.get() } else { 0 }),
            atime: time(self.atime),
            mtime: time(self.mtime),
            ctime: time(self.ctime),
            size: U64::new(self.size.get()),
            nblocks: U64::new(self.nblocks.get()),
            extsize: U32::new(self.extsize.get()),
            nextents: U32::new(self.nextents.get()),
            anextents: U16::new(self.anextents.get()),
            forkoff: self.forkoff,
            aformat: self.aformat,
            dmevmask: U32::new(self.dmevmask.get()),
            dmstate: U16::new(self.dmstate.get()),
            flags: U16::new(self.flags.get()),
            generation: U32::new(self.generation.get()),
            next_unlinked: old.next_unlinked,
            crc: old.crc,
            changecount: U64::new(self.changecount.get()),
            lsn: U64::new(lsn.get()),
            flags2: U64::new(flags2),
            cowextsize: U32::new(self.cowextsize.get()),
            pad2: [0; 12],
            crtime: time(self.crtime),
            ino: U64::new(self.ino.get()),
            uuid: self.uuid,
        }
    }
}

/// Converts a logged time to its on-disk form. The 64-bit form without bigtime is two 32-bit numbers, each in the
/// writer's byte order: seconds first.
fn disk_time(raw: u64, wide: bool) -> U64 {
    U64::new(if wide { raw } else { raw.rotate_left(32) })
}

/// Writes a logged bmbt root into the fork area of the inode.
///
/// In the log, as in the writer's memory, the root is a complete block: a long header, keys, and pointers behind the
/// space for as many keys as the region can hold. In the inode the header shrinks to level and count, and the pointers
/// begin behind the space for as many keys as the fork can hold.
pub fn root_to_disk(logged: &[u8], fork: &mut [u8]) -> Result<(), Damage> {
    const ROOT: &str = "logged extent map root";
    const ENTRY: usize = BmapKey::SIZE + 8;
    let short = || Damage::short(ROOT, LongHeader::SIZE + ENTRY, logged.len());
    let header = LongHeader::view(logged).ok_or_else(short)?;
    let body = logged.get(LongHeader::SIZE..).ok_or_else(short)?;
    let count = usize::from(header.numrecs.get());
    let room = body.len() / ENTRY;
    let most = room.min(fork.len().saturating_sub(BmapRoot::SIZE) / ENTRY);
    ensure!((1..=most).contains(&count), ROOT, "numrecs", format_args!("1 to {most}"), count);
    let level = header.level.get();
    let most_levels = crate::btree::MAX_LEVELS;
    ensure!(
        (1..most_levels).contains(&level.into()),
        ROOT,
        "level",
        format_args!("1 to {}", most_levels - 1),
        level
    );

    let keys = body.get(..count * BmapKey::SIZE).ok_or_else(short)?;
    let pointers =
        body.get(room * BmapKey::SIZE..).and_then(|rest| rest.get(..count * 8)).ok_or_else(short)?;
    let narrow = || Damage::short(ROOT, BmapRoot::SIZE + ENTRY, 0);
    let room = (fork.len() - BmapRoot::SIZE) / ENTRY; // at least `count`, so the header fits
    let mut put = |at: usize, bytes: &[u8]| -> Result<(), Damage> {
        fork.get_mut(at..at + bytes.len()).ok_or_else(narrow)?.copy_from_slice(bytes);
        Ok(())
    };
    put(0, &level.to_be_bytes())?;
    put(2, &header.numrecs.get().to_be_bytes())?;
    put(BmapRoot::SIZE, keys)?;
    put(BmapRoot::SIZE + room * BmapKey::SIZE, pointers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn the_logged_core_has_the_on_disk_offsets() {
        for (logged, disk) in RawLogInode::FIELDS.iter().zip(RawInode::FIELDS) {
            assert_eq!((logged.offset, logged.size), (disk.offset, disk.size), "{}", disk.name);
        }
        assert_eq!(RawLogInode::FIELDS.len(), RawInode::FIELDS.len());
    }

    #[test]
    fn both_layouts_of_the_format_decode_equally() {
        let mut wide = RawInodeFormat::new_zeroed();
        let mut narrow = RawInodeFormat32::new_zeroed();
        macro_rules! fill {
            ($($raw:ident),*) => {$(
                $raw.size.set(3);
                $raw.fields.set(fields::CORE | fields::ATTR_LOCAL);
                $raw.asize.set(20);
                $raw.ino.set(131);
                $raw.blkno.set(0x80);
                $raw.len.set(32);
                $raw.boffset.set(1536);
            )*};
        }
        fill!(wide, narrow);
        let parsed = InodeFormat::parse(wide.as_bytes()).unwrap();
        assert_eq!(InodeFormat::parse(narrow.as_bytes()).unwrap(), parsed);
        assert_eq!((parsed.data_region(), parsed.attr_region()), (None, Some(2)));
        wide.boffset.set(32 * 512 - 100);
        assert_eq!(InodeFormat::parse(wide.as_bytes()).unwrap_err().field(), "boffset");
        narrow.len.set(129);
        assert_eq!(InodeFormat::parse(narrow.as_bytes()).unwrap_err().field(), "len");
        assert!(InodeFormat::parse(&[0; 51]).is_err());
    }

    #[test]
    fn times_without_bigtime_keep_seconds_first() {
        let mut logged = RawLogInode::new_zeroed();
        logged.atime = LeU64::new((7 << 32) | 5); // 5 seconds, 7 nanoseconds, as a little-endian writer stores them
        let disk = logged.to_disk(&RawInode::new_zeroed(), Lsn(9));
        assert_eq!(disk.atime.get(), (5 << 32) | 7);
        assert_eq!(disk.lsn.get(), 9);
        logged.flags2.set(inode::flags2::BIGTIME);
        assert_eq!(logged.to_disk(&RawInode::new_zeroed(), Lsn(9)).atime.get(), (7 << 32) | 5);
    }

    #[test]
    fn a_logged_root_is_converted_to_the_inode_form() {
        let mut logged = LongHeader::new_zeroed().as_bytes().to_vec();
        logged[4..8].copy_from_slice(&[0, 1, 0, 2]);
        for n in [10u64, 20, 100, 200] {
            logged.extend(n.to_be_bytes());
        }
        let mut fork = [0u8; 4 + 3 * 16 + 5];
        root_to_disk(&logged, &mut fork).unwrap();
        let word = |at: usize| u64::from_be_bytes(fork[at..at + 8].try_into().unwrap());
        assert_eq!(fork[..4], [0, 1, 0, 2]);
        assert_eq!([word(4), word(12), word(28), word(36)], [10, 20, 100, 200]);
        assert_eq!(root_to_disk(&logged, &mut [0; 30]).unwrap_err().field(), "numrecs");
        assert!(root_to_disk(&logged[..80], &mut fork).is_err());
    }
}
