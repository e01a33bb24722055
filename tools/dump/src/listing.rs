//! Listings from several structures: extents of a fork, blocks of a directory, free space by size.

use std::collections::BTreeMap;
use std::ops::Range;

use base::{AgNumber, FileBlock, Ino, errno};
use format::btree::{CntBt, REFCOUNT_COW, RefcountBt};
use format::extent::Extent;
use format::inode::ForkKind;
use format::{Geometry, dabtree};
use read::{Error, ExtentWalk, Result, Volume};

use crate::dump::{Dump, tree_root};
use crate::locate::{self, Located};
use crate::request::AgBtree;
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Listing, Struct, Value};
use crate::walk::{TreeRoot, Walk};
use crate::{byaddress, inode};

/// Flags of a mapping in the output of `xfs_bmap`.
const UNWRITTEN: u64 = 0o010_000;
const SHARED: u64 = 0o100_000;
/// Fork format "local".
const LOCAL: u8 = 1;

/// The mappings of a fork including holes, in 512-byte units, like `xfs_bmap -vp`.
pub fn extents(volume: &Volume, ino: Ino, kind: ForkKind) -> Result<Dump> {
    let slot = locate::inode(volume, ino)?;
    let view = locate::view(volume, &slot)?;
    let headings = vec!["EXT", "FILE-OFFSET", "BLOCK-RANGE", "AG", "AG-OFFSET", "TOTAL", "FLAGS"];
    let mut listing = Listing { headings, cells: Vec::new(), rows: Vec::new() };
    let mut structure = Structure::new(Type::Bmbt, Struct::new());
    let mut shared = SharedBlocks::new(volume, kind);
    let mut next = FileBlock(0);
    for extent in ExtentWalk::new(volume, &view, kind, next)? {
        let Some(extent) = structure.check(extent) else { break };
        if extent.offset > next {
            push_hole(&mut listing, next, extent.offset, volume.geometry());
        }
        for (part, is_shared) in shared.split(&extent, &mut structure) {
            push_mapping(&mut listing, &part, is_shared, volume.geometry());
        }
        next = extent.end();
    }
    structure.fields.push("extents", Value::Listing(listing));
    Ok(slot.dump(structure))
}

/// Formats a range of blocks in 512-byte units.
fn sectors(start: u64, count: u64, geometry: &Geometry) -> String {
    let shift = geometry.block_log - 9;
    let (start, count) = (start.saturating_mul(1 << shift), count << shift);
    format!("{start}..{}", start.saturating_add(count).saturating_sub(1))
}

fn push_hole(listing: &mut Listing, start: FileBlock, end: FileBlock, geometry: &Geometry) {
    let (start, count) = (start.get(), end.get() - start.get());
    let range = format!("[{}]:", sectors(start, count, geometry));
    let total = (count << (geometry.block_log - 9)).to_string();
    let index = format!("{}:", listing.cells.len());
    listing.cells.push(vec![index, range, "hole".into(), String::new(), String::new(), total]);
    listing.rows.push(Struct::from([
        ("startoff", Value::Uint(start)),
        ("startblock", Value::Null),
        ("blockcount", Value::Uint(count)),
    ]));
}

fn push_mapping(listing: &mut Listing, extent: &Extent, shared: bool, geometry: &Geometry) {
    let (ag, block) = geometry.split_fs_block(extent.start).unwrap_or_default();
    let linear = geometry.ag_block_offset(ag, block) >> geometry.block_log;
    let flags = if extent.unwritten { UNWRITTEN } else { 0 } | if shared { SHARED } else { 0 };
    let index = format!("{}:", listing.cells.len());
    listing.cells.push(vec![
        index,
        format!("[{}]:", sectors(extent.offset.get(), extent.count, geometry)),
        sectors(linear, extent.count, geometry),
        ag.to_string(),
        format!("({})", sectors(block.get().into(), extent.count, geometry)),
        (extent.count << (geometry.block_log - 9)).to_string(),
        format!("{flags:06o}"),
    ]);
    listing.rows.push(Struct::from([
        ("startoff", Value::Uint(extent.offset.get())),
        ("startblock", Value::Uint(extent.start.get())),
        ("blockcount", Value::Uint(extent.count)),
        ("ag", Value::Uint(ag.get().into())),
        ("agblock", Value::Uint(block.get().into())),
        ("daddr", Value::Uint(geometry.ag_block_daddr(ag, block).get())),
        ("unwritten", Value::Uint(extent.unwritten.into())),
        ("shared", Value::Uint(shared.into())),
    ]));
}

/// The shared blocks of AGs, which are read when they are first needed.
struct SharedBlocks<'v> {
    volume: &'v Volume,
    enabled: bool,
    /// Ranges of shared blocks, in order.
    ranges: BTreeMap<AgNumber, Vec<Range<u64>>>,
}

impl<'v> SharedBlocks<'v> {
    /// Only the data fork can have shared blocks, and only with the feature reflink.
    fn new(volume: &'v Volume, kind: ForkKind) -> Self {
        let enabled = kind == ForkKind::Data && volume.geometry().features.reflink();
        Self { volume, enabled, ranges: BTreeMap::new() }
    }

    /// Splits an extent into shared and unshared parts.
    fn split(&mut self, extent: &Extent, structure: &mut Structure) -> Vec<(Extent, bool)> {
        let start = self.volume.geometry().split_fs_block(extent.start).filter(|_| self.enabled);
        let Some((ag, block)) = start else { return vec![(*extent, false)] };
        let ranges = self.ranges.entry(ag).or_insert_with(|| {
            let mut ranges = Vec::new();
            structure.check(shared_ranges(self.volume, ag, &mut ranges));
            ranges
        });
        let mut parts = Vec::new();
        let start = u64::from(block.get());
        let (mut at, end) = (start, start + extent.count);
        let mut next = ranges.partition_point(|range| range.end <= at);
        while at < end {
            let (part_end, shared) = match ranges.get(next) {
                Some(range) if range.start <= at => (range.end.min(end), true),
                Some(range) => (range.start.min(end), false),
                None => (end, false),
            };
            next += usize::from(shared);
            let part = Extent {
                offset: FileBlock(extent.offset.get() + (at - start)),
                start: base::FsBlock(extent.start.get() + (at - start)),
                count: part_end - at,
                unwritten: extent.unwritten,
            };
            parts.push((part, shared));
            at = part_end;
        }
        parts
    }
}

/// Reads the ranges of shared blocks of an AG. Adjacent ranges with different reference counts are merged.
fn shared_ranges(volume: &Volume, ag: AgNumber, ranges: &mut Vec<Range<u64>>) -> Result<()> {
    let root = root_of(volume, AgBtree::Refcountbt, ag)?;
    Walk::<RefcountBt>::run(volume, root, &mut |record| {
        let (start, count) = (record.startblock.get(), record.blockcount.get());
        let staging = start & REFCOUNT_COW != 0;
        if record.refcount.get() > 1 && !staging && count > 0 {
            let (start, end) = (u64::from(start), u64::from(start) + u64::from(count));
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
    })
}

fn root_of(volume: &Volume, tree: AgBtree, ag: AgNumber) -> Result<TreeRoot> {
    let (block, level) = tree_root(volume, tree, ag)?;
    let level = level.ok_or_else(|| {
        let message = format!("AG {ag}: the header has no level of the {}", tree.block_type().name());
        Error::unfit(errno::EFSCORRUPTED, message)
    })?;
    Ok(TreeRoot { ag, block, level })
}

/// The extent of the data fork that contains a logical block.
pub fn extent_at(volume: &Volume, slot: &Located, block: FileBlock) -> Result<Extent> {
    let view = locate::view(volume, slot)?;
    let found = ExtentWalk::new(volume, &view, ForkKind::Data, block)?.next().transpose()?;
    found.filter(|extent| extent.offset <= block).ok_or_else(|| {
        Error::unfit(errno::EINVAL, format!("{}: block {block} is a hole, or after the end", slot.place))
    })
}

/// The blocks of a directory or of attributes with their types; the fork itself if it is inline.
pub fn fork(volume: &Volume, ino: Ino, kind: ForkKind) -> Result<Dump> {
    let slot = locate::inode(volume, ino)?;
    let view = locate::view(volume, &slot)?;
    let geometry = volume.geometry();
    let (field, format) = inode::fork_format(&view, kind);
    let present = kind == ForkKind::Data || view.core.forkoff != 0;
    if !present || format == LOCAL {
        let mut structure = inode::inode(&slot.bytes, geometry, ino);
        structure.fields.0.retain(|(name, _)| name == field);
        return Ok(slot.dump(structure));
    }
    let block_type = if kind == ForkKind::Data { Type::Dir } else { Type::Attr };
    let mut structure = Structure::new(block_type, Struct::new());
    let headings = vec!["BLOCK", "DADDR", "KIND"];
    let mut listing = Listing { headings, cells: Vec::new(), rows: Vec::new() };
    let step = if kind == ForkKind::Data { 1 << geometry.dir_block_log } else { 1 };
    let mut next = FileBlock(0);
    for extent in ExtentWalk::new(volume, &view, kind, next)? {
        let Some(extent) = structure.check(extent) else { break };
        next = next.max(FileBlock(extent.offset.get().next_multiple_of(step)));
        while next < extent.end() {
            push_block(volume, &mut listing, &extent, next)?;
            next = FileBlock(next.get() + step);
        }
    }
    structure.fields.push("blocks", Value::Listing(listing));
    Ok(slot.dump(structure))
}

fn push_block(volume: &Volume, listing: &mut Listing, extent: &Extent, at: FileBlock) -> Result<()> {
    let geometry = volume.geometry();
    let start = base::FsBlock(extent.start.get() + (at.get() - extent.offset.get()));
    let (ag, block) = geometry.split_fs_block(start).unwrap_or_default();
    let daddr = geometry.ag_block_daddr(ag, block);
    let kind = block_kind(&locate::sectors(volume, daddr, 512)?.bytes);
    listing.cells.push(vec![at.to_string(), daddr.to_string(), kind.into()]);
    listing.rows.push(Struct::from([
        ("file_block", Value::Uint(at.get())),
        ("daddr", Value::Uint(daddr.get())),
        ("kind", Value::Text(kind.into())),
    ]));
    Ok(())
}

/// Names the type of a block of a directory or of attributes.
fn block_kind(bytes: &[u8]) -> &'static str {
    use format::attr;
    use format::dir::{data, free, leaf};
    match byaddress::magic(bytes) {
        data::BLOCK_MAGIC => return "block",
        data::DATA_MAGIC => return "data",
        free::MAGIC => return "free",
        attr::remote::MAGIC => return "value",
        _ => {}
    }
    match dabtree::magic(bytes) {
        Some(leaf::LEAF1_MAGIC | leaf::LEAFN_MAGIC | attr::leaf::MAGIC) => "leaf",
        Some(dabtree::NODE_MAGIC) => "node",
        _ => "unknown",
    }
}

/// A histogram of free extents by powers of two, of one AG or of all.
pub fn free_space(volume: &Volume, ag: Option<AgNumber>) -> Result<Dump> {
    if let Some(ag) = ag {
        locate::check_ag(volume, ag)?;
    }
    let mut structure = Structure::new(Type::Cntbt, Struct::new());
    // By the binary logarithm of the length.
    let mut classes = [SizeClass::default(); 32];
    for number in volume.geometry().ags().filter(|number| ag.is_none_or(|ag| ag == *number)) {
        let result = root_of(volume, AgBtree::Cntbt, number).and_then(|root| {
            Walk::<CntBt>::run(volume, root, &mut |record| {
                let count = record.blockcount.get();
                if let Some(class) = classes.get_mut(count.checked_ilog2().unwrap_or(0) as usize) {
                    class.extents += 1;
                    class.blocks += u64::from(count);
                }
            })
        });
        structure.check(result);
    }
    structure.fields = histogram(&classes);
    let place = ag.map(format::Place::ag).unwrap_or_default();
    Ok(Dump { place, structure })
}

/// Free extents of similar length.
#[derive(Clone, Copy, Default)]
struct SizeClass {
    extents: u64,
    blocks: u64,
}

fn histogram(classes: &[SizeClass]) -> Struct {
    let total: u64 = classes.iter().map(|class| class.blocks).sum();
    let headings = vec!["FROM", "TO", "EXTENTS", "BLOCKS", "PERCENT"];
    let mut listing = Listing { headings, cells: Vec::new(), rows: Vec::new() };
    for (log, class) in classes.iter().enumerate().filter(|(_, class)| class.extents > 0) {
        let numbers = [1u64 << log, (1u64 << (log + 1)) - 1, class.extents, class.blocks];
        let percent = class.blocks as f64 * 100.0 / total.max(1) as f64;
        let cells = numbers.map(|number| number.to_string());
        listing.cells.push([cells.to_vec(), vec![format!("{percent:.2}")]].concat());
        let fields = ["from", "to", "extents", "blocks"].into_iter().zip(numbers);
        listing.rows.push(Struct(fields.map(|(name, n)| (name.into(), Value::Uint(n))).collect()));
    }
    Struct::from([
        ("classes", Value::Listing(listing)),
        ("free_extents", Value::Uint(classes.iter().map(|class| class.extents).sum())),
        ("free_blocks", Value::Uint(total)),
    ])
}
