//! From a request to what is shown: finds the bytes, takes them apart, and asks the verifiers.

use std::fmt;
use std::sync::Arc;

use base::{AgBlock, AgIno, AgNumber, Daddr, FileBlock, Ino, errno};
use block::Device;
use format::inode::{Dinode, ForkKind};
use format::{Geometry, Place};
use read::{Error, Result, Volume};
use serde_json::{Value as Json, json};

use crate::locate::{self, Located};
use crate::request::{AgTree, At, File, Request, Target};
use crate::shown::Shown;
use crate::types::Type;
use crate::value::{Struct, Value};
use crate::{attr, btree, byaddress, dir, dquot, headers, inode, json, listing, logblock, text};

/// One structure, or one listing, taken apart.
#[derive(Clone, Debug)]
pub struct Dumped {
    /// Where it lies.
    pub place: Place,
    /// Its fields, and what is wrong with them.
    pub shown: Shown,
}

impl Dumped {
    /// Writes one `name = value` a line. What a verifier objects to comes first, in lines that begin with `#`.
    pub fn write_text(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for objection in &self.shown.objections {
            writeln!(out, "# damaged: {}: {objection}", self.place)?;
        }
        text::write(&self.shown.fields, out)
    }

    /// The same as a string.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        // A string takes whatever is written to it.
        let _ = self.write_text(&mut out);
        out
    }

    /// The fields of a JSON object: `type`, `place`, `objections`, `fields`.
    pub fn to_json(&self) -> Json {
        let Place { ag, block, daddr, ino, file_block } = self.place;
        json!({
            "type": self.shown.kind.name(),
            "place": {
                "ag": ag.map(AgNumber::get),
                "block": block.map(AgBlock::get),
                "daddr": daddr.map(Daddr::get),
                "inode": ino.map(Ino::get),
                "file_block": file_block.map(FileBlock::get),
            },
            "objections": self.shown.objections,
            "fields": json::fields(&self.shown.fields),
        })
    }
}

/// Shows something of a device, whose volume may be too damaged to be opened: then only superblocks and raw sectors can
/// be shown, and the error says why where they are not what was asked for.
pub fn dump_device(device: Arc<dyn Device>, request: &Request) -> Result<Dumped> {
    match Volume::open_unverified(Arc::clone(&device)) {
        Ok(volume) => dump(&volume, request),
        Err(error) => byaddress::without_volume(&*device, request).unwrap_or(Err(error)),
    }
}

/// Shows something of a volume. Errors are those of finding it: what is found is shown, whatever it holds.
pub fn dump(volume: &Volume, request: &Request) -> Result<Dumped> {
    let geometry = volume.geometry();
    match &request.target {
        Target::Superblock(ag) => {
            let located = locate::header(volume, *ag, 0)?;
            let shown = match ag.get() {
                0 => headers::superblock(&located.bytes),
                _ => headers::secondary(&located.bytes, geometry),
            };
            Ok(located.show(shown))
        }
        Target::Agf(ag) => show_header(volume, *ag, 1, headers::agf),
        Target::Agi(ag) => show_header(volume, *ag, 2, headers::agi),
        Target::Agfl(ag) => show_header(volume, *ag, 3, headers::agfl),
        Target::Tree { tree, ag, at } => show_tree(volume, *tree, *ag, at),
        Target::Inode(file) => show_inode(volume, locate::ino(volume, file)?),
        Target::Bmbt { file, fork, children } => {
            show_bmbt(volume, locate::ino(volume, file)?, *fork, children)
        }
        Target::Extents { file, fork } => listing::extents(volume, locate::ino(volume, file)?, *fork),
        Target::FreeSpace(ag) => listing::free_space(volume, *ag),
        Target::Dir(file, block) => show_fork(volume, file, ForkKind::Data, *block),
        Target::Attr(file, block) => show_fork(volume, file, ForkKind::Attr, *block),
        Target::Symlink(file, block) => show_symlink(volume, locate::ino(volume, file)?, *block),
        Target::Dquot(kind, id) => dquot::show(volume, *kind, *id),
        Target::Log(block) => logblock::show(volume, *block),
        Target::Block(ag, block) => {
            let located = locate::ag_block(volume, *ag, *block)?;
            byaddress::show(volume, located.daddr, geometry.block_size as usize, request.force)
        }
        Target::FsBlock(number) => {
            let (ag, block) = geometry.split_fs_block(*number).ok_or_else(|| {
                Error::unfit(errno::EINVAL, format!("block {number:#x} lies outside of the volume"))
            })?;
            let daddr = geometry.ag_block_daddr(ag, block);
            byaddress::show(volume, daddr, geometry.block_size as usize, request.force)
        }
        Target::Daddr(daddr) => byaddress::show(volume, *daddr, 512, request.force),
    }
}

impl Located {
    /// What was taken out of these bytes, with the place where they lie.
    pub fn show(&self, shown: Shown) -> Dumped {
        Dumped { place: Place { daddr: Some(self.daddr), ..self.place }, shown }
    }
}

type Header = fn(&[u8], &Geometry, AgNumber) -> Shown;

fn show_header(volume: &Volume, ag: AgNumber, sector: u32, header: Header) -> Result<Dumped> {
    let located = locate::header(volume, ag, sector)?;
    let shown = header(&located.bytes, volume.geometry(), ag);
    Ok(located.show(shown))
}

fn show_tree(volume: &Volume, tree: AgTree, ag: AgNumber, at: &At) -> Result<Dumped> {
    let kind = tree.block_type();
    let geometry = volume.geometry();
    let (located, level) = match at {
        At::Block(block) => (locate::ag_block(volume, ag, *block)?, None),
        At::Path(children) => {
            let (root, level) = tree_root(volume, tree, ag)?;
            let root = locate::ag_block(volume, ag, root)?;
            descend(children, (root, level), kind, geometry, |pointer| {
                let block = u32::try_from(pointer).unwrap_or(u32::MAX);
                locate::ag_block(volume, ag, AgBlock(block))
            })?
        }
    };
    let identity = locate::identity(geometry, located.daddr, None);
    Ok(located.show(btree::block(kind, &located.bytes, geometry, identity, level)))
}

/// The root of a tree of an AG and its level, as the AG's header says, damaged or not.
pub(crate) fn tree_root(volume: &Volume, tree: AgTree, ag: AgNumber) -> Result<(AgBlock, Option<u16>)> {
    let (sector, root, level, present) = match tree {
        AgTree::Bnobt => (1, "bnoroot", "bnolevel", true),
        AgTree::Cntbt => (1, "cntroot", "cntlevel", true),
        AgTree::Rmapbt => (1, "rmaproot", "rmaplevel", volume.geometry().features.rmapbt()),
        AgTree::Refcountbt => (1, "refcntroot", "refcntlevel", volume.geometry().features.reflink()),
        AgTree::Inobt => (2, "root", "level", true),
        AgTree::Finobt => (2, "free_root", "free_level", volume.geometry().features.finobt()),
    };
    if !present {
        let message =
            format!("this volume has no {}: it was made without that feature", tree.block_type().name());
        return Err(Error::unfit(errno::EINVAL, message));
    }
    let header = if sector == 1 { headers::agf } else { headers::agi };
    let fields = show_header(volume, ag, sector, header)?.shown.fields;
    let number = |name| fields.get(name).and_then(Value::number).and_then(|n| u32::try_from(n).ok());
    // All ones are no block; the error of reading that says so.
    let root = number(root).unwrap_or(u32::MAX);
    let level = number(level).and_then(|levels| u16::try_from(levels.checked_sub(1)?).ok());
    Ok((AgBlock(root), level))
}

/// Follows the numbers of children down from a block, each counted from 1.
fn descend(
    children: &[usize],
    root: (Located, Option<u16>),
    kind: Type,
    geometry: &Geometry,
    read: impl Fn(u64) -> Result<Located>,
) -> Result<(Located, Option<u16>)> {
    let (mut located, mut level) = root;
    for child in children {
        let (found, pointers) = btree::pointers(kind, &located.bytes, geometry).unwrap_or_default();
        let pointer = child
            .checked_sub(1)
            .and_then(|index| pointers.get(index))
            .ok_or_else(|| no_child(&format!("{} {}", located.place, kind.name()), *child, pointers.len()))?;
        located = read(*pointer)?;
        level = Some(found.saturating_sub(1));
    }
    Ok((located, level))
}

fn no_child(what: &str, child: usize, count: usize) -> Error {
    let message = match count {
        0 => format!("{what}: there is no child {child}: it is a leaf"),
        _ => format!("{what}: there is no child {child}: it has 1 to {count}"),
    };
    Error::unfit(errno::EINVAL, message)
}

fn show_inode(volume: &Volume, ino: Ino) -> Result<Dumped> {
    let located = locate::inode(volume, ino)?;
    let shown = inode::inode(&located.bytes, volume.geometry(), ino);
    Ok(located.show(shown))
}

/// Every inode of a block.
pub(crate) fn show_inodes(volume: &Volume, located: &Located) -> Shown {
    let geometry = volume.geometry();
    let size = (geometry.inode_size as usize).max(512);
    let first = geometry.split_daddr(located.daddr).and_then(|(ag, block)| {
        let within = geometry.first_ag_ino(block)?;
        let skipped = (located.daddr.get() - geometry.ag_block_daddr(ag, block).get()) << 9;
        Some(geometry.ino(ag, AgIno(within.get() + (skipped >> geometry.inode_log) as u32)))
    });
    let first = first.unwrap_or_default();
    let inodes: Vec<Shown> = (located.bytes.chunks(size).zip(0..))
        .map(|(slot, index)| inode::inode(slot, geometry, Ino(first.get() + index)))
        .collect();
    if let [only] = inodes.as_slice() {
        return only.clone();
    }
    let mut shown = Shown::new(Type::Inode, Struct::new());
    let mut list = Vec::new();
    for (inode, index) in inodes.into_iter().zip(first.get()..) {
        let objections = inode.objections.into_iter().map(|objection| format!("inode {index}: {objection}"));
        shown.objections.extend(objections);
        list.push(inode.fields.into());
    }
    shown.fields.push("inodes", Value::List(list));
    shown
}

fn show_bmbt(volume: &Volume, ino: Ino, kind: ForkKind, children: &[usize]) -> Result<Dumped> {
    let geometry = volume.geometry();
    let slot = locate::inode(volume, ino)?;
    let view = locate::view(volume, &slot)?;
    let (level, pointers) = inode::root_pointers(&view, kind).ok_or_else(|| {
        let message = format!("inode {ino}: this fork has no tree: its format is not btree");
        Error::unfit(errno::EINVAL, message)
    })?;
    let Some((child, below)) = children.split_first() else {
        let mut shown = Shown::new(Type::Bmbt, inode::root(view.fork_bytes(kind), geometry));
        shown.object(Dinode::verify(&slot.bytes, geometry, ino));
        return Ok(slot.show(shown));
    };
    let read = |pointer: u64| {
        let found = geometry.split_fs_block(base::FsBlock(pointer));
        let (ag, block) = found.ok_or_else(|| {
            let message = format!("inode {ino}: the pointer {pointer:#x} leads out of the volume");
            Error::unfit(errno::EFSCORRUPTED, message)
        })?;
        locate::ag_block(volume, ag, block)
    };
    let pointer = child
        .checked_sub(1)
        .and_then(|index| pointers.get(index))
        .ok_or_else(|| no_child(&format!("inode {ino}: extent map root"), *child, pointers.len()))?;
    let first = (read(*pointer)?, Some(level.saturating_sub(1)));
    let (located, level) = descend(below, first, Type::Bmbt, geometry, read)?;
    let identity = locate::identity(geometry, located.daddr, Some(ino));
    let shown = btree::block(Type::Bmbt, &located.bytes, geometry, identity, level);
    Ok(Located { place: located.place.of_inode(ino), ..located }.show(shown))
}

/// A block of a directory or of attributes; without one, which blocks there are, or the fork itself where it is inline.
fn show_fork(volume: &Volume, file: &File, kind: ForkKind, block: Option<FileBlock>) -> Result<Dumped> {
    let ino = locate::ino(volume, file)?;
    let geometry = volume.geometry();
    let Some(block) = block else { return listing::fork(volume, ino, kind) };
    let per_block = if kind == ForkKind::Data { 1 << geometry.dir_block_log } else { 1 };
    let part = locate::fork_blocks(volume, ino, kind, block, per_block)?;
    let show = if kind == ForkKind::Data { dir::block } else { attr::block };
    Ok(part.located.show(show(&part.located.bytes, geometry, part.at)))
}

/// A run of blocks that lie together has one header.
fn show_symlink(volume: &Volume, ino: Ino, block: FileBlock) -> Result<Dumped> {
    let geometry = volume.geometry();
    let slot = locate::inode(volume, ino)?;
    let size = locate::view(volume, &slot)?.core.size.get();
    let size = u32::try_from(size).unwrap_or(u32::MAX).min(format::symlink::MAX_TARGET);
    let most = format::symlink::block_count(size, geometry).max(1);
    let extent = listing::extent_at(volume, &slot, block)?;
    let run = u32::try_from(extent.end().get() - block.get()).unwrap_or(u32::MAX).min(most);
    let part = locate::fork_blocks(volume, ino, ForkKind::Data, block, run)?;
    Ok(part.located.show(attr::symlink_block(&part.located.bytes, geometry, part.at)))
}
