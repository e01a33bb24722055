//! What no single structure says: the extents of a fork, the blocks of a directory, free space by size.

use std::collections::BTreeMap;

use base::{AgNumber, FileBlock, Ino, errno};
use format::btree::{CntBt, REFCOUNT_COW, RefcountBt};
use format::extent::Extent;
use format::inode::ForkKind;
use format::{Geometry, dabtree};
use read::{Error, ExtentWalk, Result, Volume};

use crate::dump::{Dumped, tree_root};
use crate::locate::{self, Located};
use crate::request::AgTree;
use crate::shown::Shown;
use crate::types::Type;
use crate::value::{Listing, Struct, Value};
use crate::walk::{Root, Walk};
use crate::{byaddress, inode};

/// Flags of a mapping, as `xfs_bmap` has them.
const UNWRITTEN: u64 = 0o010_000;
const SHARED: u64 = 0o100_000;
/// The format byte of a fork that is inline.
const LOCAL: u8 = 1;

/// What a fork maps, in 512-byte units, holes included, as `xfs_bmap -vp` shows it.
pub fn extents(volume: &Volume, ino: Ino, kind: ForkKind) -> Result<Dumped> {
    let slot = locate::inode(volume, ino)?;
    let view = locate::view(volume, &slot)?;
    let headings = vec!["EXT", "FILE-OFFSET", "BLOCK-RANGE", "AG", "AG-OFFSET", "TOTAL", "FLAGS"];
    let mut listing = Listing { headings, cells: Vec::new(), rows: Vec::new() };
    let mut shown = Shown::new(Type::Bmbt, Struct::new());
    let mut shared = SharedBlocks::new(volume, kind);
    let mut next = FileBlock(0);
    for extent in ExtentWalk::new(volume, &view, kind, next)? {
        let Some(extent) = shown.object(extent) else { break };
        if extent.offset > next {
            push_hole(&mut listing, next, extent.offset, volume.geometry());
        }
        for (part, is_shared) in shared.split(&extent, &mut shown) {
            push_mapping(&mut listing, &part, is_shared, volume.geometry());
        }
        next = extent.end();
    }
    shown.fields.push("extents", Value::Listing(listing));
    Ok(slot.show(shown))
}

/// A range of `count` units from `start` on, both counted in blocks, in 512-byte units.
fn sectors(start: u64, count: u64, geometry: &Geometry) -> String {
    let shift = geometry.block_log - 9;
    let (start, count) = (start.saturating_mul(1 << shift), count << shift);
    format!("{start}..{}", start.saturating_add(count).saturating_sub(1))
}

fn push_hole(listing: &mut Listing, from: FileBlock, to: FileBlock, geometry: &Geometry) {
    let (start, count) = (from.get(), to.get() - from.get());
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

/// Which blocks have several owners, read AG by AG as they are asked for.
struct SharedBlocks<'v> {
    volume: &'v Volume,
    wanted: bool,
    /// Start and end of each run, in order.
    runs: BTreeMap<AgNumber, Vec<(u32, u32)>>,
}

impl<'v> SharedBlocks<'v> {
    /// Only data of files can be shared, and only on volumes with that feature.
    fn new(volume: &'v Volume, kind: ForkKind) -> Self {
        let wanted = kind == ForkKind::Data && volume.geometry().features.reflink();
        Self { volume, wanted, runs: BTreeMap::new() }
    }

    /// Cuts an extent where sharing begins or ends.
    fn split(&mut self, extent: &Extent, shown: &mut Shown) -> Vec<(Extent, bool)> {
        let place = self.volume.geometry().split_fs_block(extent.start).filter(|_| self.wanted);
        let Some((ag, block)) = place else { return vec![(*extent, false)] };
        let runs = self.runs.entry(ag).or_insert_with(|| {
            let mut runs = Vec::new();
            shown.object(shared_runs(self.volume, ag, &mut runs));
            runs
        });
        let mut parts = Vec::new();
        let (mut at, end) = (u64::from(block.get()), u64::from(block.get()) + extent.count);
        let mut next = runs.partition_point(|(_, end)| u64::from(*end) <= at);
        while at < end {
            let run = runs.get(next).map(|(from, to)| (u64::from(*from).min(end), u64::from(*to).min(end)));
            let (stop, shared) = match run {
                Some((from, to)) if from <= at => (to, true),
                Some((from, _)) => (from, false),
                None => (end, false),
            };
            next += usize::from(shared);
            parts.push((part(extent, at - u64::from(block.get()), stop - at), shared));
            at = stop;
        }
        parts
    }
}

/// A part of an extent.
fn part(extent: &Extent, skip: u64, count: u64) -> Extent {
    Extent {
        offset: FileBlock(extent.offset.get() + skip),
        start: base::FsBlock(extent.start.get() + skip),
        count,
        unwritten: extent.unwritten,
    }
}

fn shared_runs(volume: &Volume, ag: AgNumber, runs: &mut Vec<(u32, u32)>) -> Result<()> {
    let root = root_of(volume, AgTree::Refcountbt, ag)?;
    Walk::<RefcountBt>::run(volume, root, &mut |record| {
        let (start, count) = (record.startblock.get(), record.blockcount.get());
        let staging = start & REFCOUNT_COW != 0;
        if record.refcount.get() > 1 && !staging && count > 0 {
            let end = start.saturating_add(count);
            match runs.last_mut() {
                // Neighbours may differ in how often they are shared.
                Some((_, last)) if *last == start => *last = end,
                _ => runs.push((start, end)),
            }
        }
    })
}

fn root_of(volume: &Volume, tree: AgTree, ag: AgNumber) -> Result<Root> {
    let (block, level) = tree_root(volume, tree, ag)?;
    let level = level.ok_or_else(|| {
        let message = format!("AG {ag}: the header has no levels for its {}", tree.block_type().name());
        Error::unfit(errno::EFSCORRUPTED, message)
    })?;
    Ok(Root { ag, block, level })
}

/// The extent that holds a logical block of a file's data.
pub fn extent_at(volume: &Volume, slot: &Located, block: FileBlock) -> Result<Extent> {
    let view = locate::view(volume, slot)?;
    let found = ExtentWalk::new(volume, &view, ForkKind::Data, block)?.next().transpose()?;
    found.filter(|extent| extent.offset <= block).ok_or_else(|| {
        Error::unfit(errno::EINVAL, format!("{}: block {block} is a hole, or behind the end", slot.place))
    })
}

/// The blocks of a directory or of attributes, each with what its magic says it is; the fork itself where it is inline.
pub fn fork(volume: &Volume, ino: Ino, kind: ForkKind) -> Result<Dumped> {
    let slot = locate::inode(volume, ino)?;
    let view = locate::view(volume, &slot)?;
    let geometry = volume.geometry();
    let (field, format) = match kind {
        ForkKind::Data => ("u3", view.core.format),
        ForkKind::Attr => ("a", view.core.aformat),
    };
    let present = kind == ForkKind::Data || view.core.forkoff != 0;
    if !present || format == LOCAL {
        let mut shown = inode::inode(&slot.bytes, geometry, ino);
        shown.fields.0.retain(|(name, _)| name == field);
        return Ok(slot.show(shown));
    }
    let of = if kind == ForkKind::Data { Type::Dir } else { Type::Attr };
    let mut shown = Shown::new(of, Struct::new());
    let headings = vec!["BLOCK", "DADDR", "KIND"];
    let mut listing = Listing { headings, cells: Vec::new(), rows: Vec::new() };
    let step = if kind == ForkKind::Data { 1 << geometry.dir_block_log } else { 1 };
    let mut next = FileBlock(0);
    for extent in ExtentWalk::new(volume, &view, kind, next)? {
        let Some(extent) = shown.object(extent) else { break };
        next = next.max(FileBlock(extent.offset.get().next_multiple_of(step)));
        while next < extent.end() {
            push_block(volume, &mut listing, &extent, next)?;
            next = FileBlock(next.get() + step);
        }
    }
    shown.fields.push("blocks", Value::Listing(listing));
    Ok(slot.show(shown))
}

fn push_block(volume: &Volume, listing: &mut Listing, extent: &Extent, at: FileBlock) -> Result<()> {
    let geometry = volume.geometry();
    let start = base::FsBlock(extent.start.get() + (at.get() - extent.offset.get()));
    let (ag, block) = geometry.split_fs_block(start).unwrap_or_default();
    let daddr = geometry.ag_block_daddr(ag, block);
    let kind = kind_of(&locate::sectors(volume, daddr, 512)?.bytes);
    listing.cells.push(vec![at.to_string(), daddr.to_string(), kind.into()]);
    listing.rows.push(Struct::from([
        ("file_block", Value::Uint(at.get())),
        ("daddr", Value::Uint(daddr.get())),
        ("kind", Value::Text(kind.into())),
    ]));
    Ok(())
}

/// What a block of a directory or of attributes is, in a word.
fn kind_of(bytes: &[u8]) -> &'static str {
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

/// Free extents by powers of two, of one AG or of all.
pub fn free_space(volume: &Volume, ag: Option<AgNumber>) -> Result<Dumped> {
    if let Some(ag) = ag {
        locate::check_ag(volume, ag)?;
    }
    let mut shown = Shown::new(Type::Cntbt, Struct::new());
    // By log2 of the length: extents and blocks.
    let mut classes = [(0u64, 0u64); 32];
    for each in volume.geometry().ags().filter(|each| ag.is_none_or(|ag| ag == *each)) {
        let outcome = root_of(volume, AgTree::Cntbt, each).and_then(|root| {
            Walk::<CntBt>::run(volume, root, &mut |record| {
                let count = record.blockcount.get();
                let class = classes.get_mut(count.checked_ilog2().unwrap_or(0) as usize);
                if let Some((extents, blocks)) = class {
                    *extents += 1;
                    *blocks += u64::from(count);
                }
            })
        });
        shown.object(outcome);
    }
    shown.fields = classes_of(&classes);
    let place = ag.map(format::Place::ag).unwrap_or_default();
    Ok(Dumped { place, shown })
}

fn classes_of(classes: &[(u64, u64)]) -> Struct {
    let total: u64 = classes.iter().map(|(_, blocks)| blocks).sum();
    let headings = vec!["FROM", "TO", "EXTENTS", "BLOCKS", "PERCENT"];
    let mut listing = Listing { headings, cells: Vec::new(), rows: Vec::new() };
    for (class, (extents, blocks)) in classes.iter().enumerate().filter(|(_, (extents, _))| *extents > 0) {
        let (from, to) = (1u64 << class, (1u64 << (class + 1)) - 1);
        let percent = *blocks as f64 * 100.0 / total.max(1) as f64;
        let numbers = [from, to, *extents, *blocks].map(|number| number.to_string());
        listing.cells.push([numbers.to_vec(), vec![format!("{percent:.2}")]].concat());
        let names = ["from", "to", "extents", "blocks"];
        let fields = names.into_iter().zip([from, to, *extents, *blocks]);
        listing.rows.push(Struct(fields.map(|(name, n)| (name.into(), Value::Uint(n))).collect()));
    }
    Struct::from([
        ("classes", Value::Listing(listing)),
        ("free_extents", Value::Uint(classes.iter().map(|(extents, _)| extents).sum())),
        ("free_blocks", Value::Uint(total)),
    ])
}
