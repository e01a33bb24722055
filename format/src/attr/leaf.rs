//! Attribute leaf blocks: entries sorted by hash grow from the front, names with their values from the end.

use base::FileBlock;

use super::{Attr, AttrValue, MAX_VALUE, flags, verify_namespace};
use crate::dabtree::{self, BlkInfo, DaTree, ensure_sorted};
use crate::damage::Damage;
use crate::ensure;
use crate::fork_block::ForkBlock;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16, U32};

/// Magic of a leaf.
pub const MAGIC: u16 = 0x3bee;
/// Bytes before the first entry.
pub const HEADER_SIZE: usize = BlkInfo::SIZE + AttrLeafHeader::SIZE;
pub(super) const NAME: &str = "attribute leaf";
/// Alignment of names.
pub(super) const ALIGN: usize = 4;
/// The largest block.
const LARGEST_BLOCK: usize = 65536;
/// Bytes to add to the name length for the size of a remote attribute: the C structure was 12 bytes long and included
/// the first byte of the name.
pub(super) const REMOTE_PADDED: usize = 11;

crate::ondisk! {
    /// The rest of the header after [`BlkInfo`].
    pub struct AttrLeafHeader("attribute leaf", 24) {
        /// Number of attributes.
        count: U16 = Uint,
        /// Bytes used by names and values.
        usedbytes: U16 = Uint,
        /// Offset of the lowest name; 0 means 65536, the end of an empty leaf of that size.
        firstused: U16 = Uint,
        /// Not 0 if there is free space that `freemap` does not list.
        holes: u8 = Uint,
        /// Zero.
        pad1: u8 = Padding,
        /// Offset of a free region.
        base0 as "freemap[0].base": U16 = Hex,
        /// Its length in bytes.
        size0 as "freemap[0].size": U16 = Hex,
        /// Offset of a free region.
        base1 as "freemap[1].base": U16 = Hex,
        /// Its length in bytes.
        size1 as "freemap[1].size": U16 = Hex,
        /// Offset of a free region.
        base2 as "freemap[2].base": U16 = Hex,
        /// Its length in bytes.
        size2 as "freemap[2].size": U16 = Hex,
        /// Zero.
        pad2: U32 = Padding,
    }

    /// An entry of a leaf.
    pub struct AttrLeafEntry("attribute leaf entry", 8) {
        /// Hash of the name; for parent pointers see [`crate::hash::parent`].
        hashval: U32 = Hex,
        /// Offset of the name in the block.
        nameidx: U16 = Hex,
        /// Namespace, and the flags `LOCAL` and `INCOMPLETE`.
        flags: u8 = Hex,
        /// Zero.
        pad2: u8 = Padding,
    }

    /// The start of a local attribute; name and value follow.
    pub struct LocalName("local attribute", 3) {
        /// Length of the value in bytes.
        valuelen: U16 = Uint,
        /// Length of the name in bytes.
        namelen: u8 = Uint,
    }

    /// The start of a remote attribute; the name follows.
    pub struct RemoteName("remote attribute", 9) {
        /// First logical block of the value.
        valueblk: U32 = Uint,
        /// Length of the value in bytes.
        valuelen: U32 = Uint,
        /// Length of the name in bytes.
        namelen: u8 = Uint,
    }
}

impl AttrLeafHeader {
    /// Free regions as offset and length in bytes; slots of length 0 are unused.
    pub fn freemap(&self) -> [(u16, u16); 3] {
        [(self.base0, self.size0), (self.base1, self.size1), (self.base2, self.size2)]
            .map(|(base, size)| (base.get(), size.get()))
    }
}

/// A verified attribute leaf.
#[derive(Clone, Copy, Debug)]
pub struct AttrLeaf<'a> {
    /// Siblings, address, UUID and owner.
    pub info: &'a BlkInfo,
    /// Counts and free regions.
    pub header: &'a AttrLeafHeader,
    /// Entries in the order of their hashes.
    pub entries: &'a [AttrLeafEntry],
    bytes: &'a [u8],
    geometry: &'a Geometry,
}

impl<'a> AttrLeaf<'a> {
    /// Verifies a leaf: identity, checksum, and that entries and names do not overlap. Names are verified when
    /// accessed.
    pub fn verify(bytes: &'a [u8], geometry: &'a Geometry, at: ForkBlock) -> Result<Self, Damage> {
        let size = DaTree::Attr.block_size(geometry);
        let (_, bytes) = dabtree::verify_info(NAME, bytes, size, &[MAGIC], geometry, at)?;
        Self::of(bytes, geometry)
    }

    /// Views a leaf that was verified when read and may have been modified in memory since, so that its checksum is not
    /// valid.
    pub fn of(bytes: &'a [u8], geometry: &'a Geometry) -> Result<Self, Damage> {
        let size = DaTree::Attr.block_size(geometry);
        let short = || Damage::short(NAME, size, bytes.len());
        let bytes = bytes.get(..size).ok_or_else(short)?;
        let info = BlkInfo::view(bytes).ok_or_else(short)?;
        let magic = info.magic.get();
        ensure!(magic == MAGIC, NAME, "magic", format_args!("{MAGIC:#06x}"), format_args!("{magic:#06x}"));
        let header = bytes.get(BlkInfo::SIZE..).and_then(AttrLeafHeader::view).ok_or_else(short)?;
        let count = usize::from(header.count.get());
        let first_used = first_used(header);
        let entries_end = HEADER_SIZE + count * AttrLeafEntry::SIZE;
        ensure!(
            (entries_end..=size).contains(&first_used),
            NAME,
            "firstused",
            format_args!("{entries_end:#x} to {size:#x}, after {count} entries"),
            format_args!("{first_used:#x}")
        );
        let room = bytes.get(HEADER_SIZE..).ok_or_else(short)?;
        let entries = AttrLeafEntry::view_array(room, count).ok_or_else(short)?;
        Ok(Self { info, header, entries, bytes, geometry })
    }

    /// Iterates over the attributes in the order of their hashes; a damaged one yields an error and the iteration
    /// continues.
    pub fn attrs(&self) -> impl Iterator<Item = Result<Attr<'a>, Damage>> + use<'a> {
        let leaf = *self;
        self.entries.iter().map(move |entry| leaf.attr(entry))
    }

    /// The attributes of this leaf with this hash.
    pub fn find(&self, hash: u32) -> impl Iterator<Item = Result<Attr<'a>, Damage>> + use<'a> {
        let leaf = *self;
        let first = self.entries.partition_point(|entry| entry.hashval.get() < hash);
        let rest = self.entries.get(first..).unwrap_or(&[]).iter();
        rest.take_while(move |entry| entry.hashval.get() == hash).map(move |entry| leaf.attr(entry))
    }

    /// The highest hash; 0 in an empty leaf.
    pub fn last_hash(&self) -> u32 {
        self.entries.last().map_or(0, |entry| entry.hashval.get())
    }

    /// The attribute of an entry of this leaf.
    pub fn attr(&self, entry: &AttrLeafEntry) -> Result<Attr<'a>, Damage> {
        self.extent_and_attr(entry).map(|(_, attr)| attr)
    }

    /// The attribute, and the size in bytes of its name and value in the block.
    pub(super) fn extent_and_attr(&self, entry: &AttrLeafEntry) -> Result<(usize, Attr<'a>), Damage> {
        let offset = usize::from(entry.nameidx.get());
        let first_used = first_used(self.header);
        ensure!(
            offset >= first_used && offset.is_multiple_of(ALIGN),
            NAME,
            "nameidx",
            format_args!("a multiple of {ALIGN} from {first_used:#x} on"),
            format_args!("{offset:#x}")
        );
        let known = flags::NAMESPACES | flags::LOCAL | flags::INCOMPLETE;
        ensure!(
            entry.flags & !known == 0,
            NAME,
            "flags",
            format_args!("bits of {known:#x}"),
            format_args!("{:#x}", entry.flags)
        );
        let namespace = verify_namespace(NAME, entry.flags)?;
        let rest = self.bytes.get(offset..).unwrap_or(&[]);
        let local = entry.flags & flags::LOCAL != 0;
        let (size, name, value) =
            if local { take_local(rest) } else { take_remote(rest)? }.ok_or_else(|| {
                let found = format_args!("one that begins at {offset:#x}").to_string();
                Damage::new(NAME, "namelist", "a name and value that end within the block", found)
            })?;
        let incomplete = entry.flags & flags::INCOMPLETE != 0;
        let attr = Attr { namespace, incomplete, name, value };
        attr.verify(NAME, self.geometry)?;
        Ok((size, attr))
    }

    /// Checks in addition to [`Self::verify`]: hashes are in order and match the names, names and values do not
    /// overlap, their sizes add up, and free regions are free.
    pub fn audit(&self) -> Result<(), Damage> {
        ensure_sorted(NAME, self.entries.iter().map(|entry| entry.hashval.get()))?;
        let mut room = Room::default();
        let mut used = 0;
        for entry in self.entries {
            let (size, attr) = self.extent_and_attr(entry)?;
            let (hash, named) = (entry.hashval.get(), attr.hash(self.geometry));
            ensure!(hash == named, NAME, "hashval", format_args!("{named:#x}"), format_args!("{hash:#x}"));
            let offset = usize::from(entry.nameidx.get());
            ensure!(
                room.take(offset, size),
                NAME,
                "namelist",
                "names and values that do not overlap",
                format_args!("{size} bytes at {offset:#x}")
            );
            used += size;
        }
        // After removals the kernel may leave `firstused` below the lowest name, but never above; each name was checked
        // for that.
        let found = usize::from(self.header.usedbytes.get());
        ensure!(found == used, NAME, "usedbytes", used, found);
        self.audit_freemap(&mut room)
    }

    fn audit_freemap(&self, room: &mut Room) -> Result<(), Damage> {
        let end = HEADER_SIZE + self.entries.len() * AttrLeafEntry::SIZE;
        for (base, size) in self.header.freemap() {
            let (base, size) = (usize::from(base), usize::from(size));
            ensure!(
                base.is_multiple_of(ALIGN) && size.is_multiple_of(ALIGN) && base + size <= self.bytes.len(),
                NAME,
                "freemap",
                format_args!("multiples of {ALIGN} within the block"),
                format_args!("{size} bytes at {base:#x}")
            );
            ensure!(
                size == 0 || (base >= end && room.take(base, size)),
                NAME,
                "freemap",
                "regions that neither entries nor names take",
                format_args!("{size} bytes at {base:#x}")
            );
        }
        Ok(())
    }
}

/// Offset of the lowest name.
pub(super) fn first_used(header: &AttrLeafHeader) -> usize {
    match header.firstused.get() {
        0 => LARGEST_BLOCK,
        offset => offset.into(),
    }
}

type Taken<'a> = Option<(usize, &'a [u8], AttrValue<'a>)>;

fn take_local(rest: &[u8]) -> Taken<'_> {
    let header = LocalName::view(rest)?;
    let (name, behind) = rest.get(LocalName::SIZE..)?.split_at_checked(header.namelen.into())?;
    let value = behind.get(..header.valuelen.get().into())?;
    let size = (LocalName::SIZE + name.len() + value.len()).next_multiple_of(ALIGN);
    (size <= rest.len()).then_some((size, name, AttrValue::Inline(value)))
}

fn take_remote(rest: &[u8]) -> Result<Taken<'_>, Damage> {
    let Some(header) = RemoteName::view(rest) else { return Ok(None) };
    let length = header.valuelen.get();
    ensure!(length <= MAX_VALUE, NAME, "valuelen", format_args!("at most {MAX_VALUE}"), length);
    let block = header.valueblk.get();
    ensure!(block != 0 || length == 0, NAME, "valueblk", "a block other than the first", block);
    let end = RemoteName::SIZE + usize::from(header.namelen);
    let size = (REMOTE_PADDED + usize::from(header.namelen)).next_multiple_of(ALIGN);
    let value = AttrValue::Remote { block: FileBlock(block.into()), length };
    Ok(rest.get(RemoteName::SIZE..end).filter(|_| size <= rest.len()).map(|name| (size, name, value)))
}

/// Bitmap of the used bytes of a block: one bit per 4 bytes, so that a check does not allocate.
struct Room([u64; LARGEST_BLOCK / ALIGN / 64]);

impl Default for Room {
    fn default() -> Self {
        Self([0; LARGEST_BLOCK / ALIGN / 64])
    }
}

impl Room {
    /// Marks a region as used; returns `false` if it overlaps a used one.
    fn take(&mut self, offset: usize, size: usize) -> bool {
        for unit in offset / ALIGN..(offset + size) / ALIGN {
            let Some(word) = self.0.get_mut(unit / 64) else { return false };
            let bit = 1 << (unit % 64);
            if *word & bit != 0 {
                return false;
            }
            *word |= bit;
        }
        true
    }
}
