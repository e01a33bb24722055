//! Answers a request: locates a structure, decodes it, and runs its verifiers.

use std::fmt;
use std::sync::Arc;

use base::{AgBlock, AgIno, AgNumber, Daddr, FileBlock, Ino, errno};
use block::Device;
use format::inode::{Dinode, ForkKind};
use format::{Geometry, Place};
use read::{Error, Result, Volume};
use serde_json::{Value as Json, json};

use crate::locate::{self, Located};
use crate::request::{AgBtree, FileSelector, Request, Target, TreeBlock};
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Struct, Value};
use crate::{attr, btree, byaddress, dir, dquot, headers, inode, json, listing, logblock, text};

/// A decoded structure or listing, and its place.
#[derive(Clone, Debug)]
pub struct Dump {
    /// AG, block, sector or inode.
    pub place: Place,
    /// The structure.
    pub structure: Structure,
}

impl Dump {
    /// Writes one `name = value` per line, after the errors of the verifiers in lines that begin with `#`.
    pub fn write_text(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for objection in &self.structure.objections {
            writeln!(out, "# damaged: {}: {objection}", self.place)?;
        }
        text::write(&self.structure.fields, out)
    }

    /// The text of [`write_text`](Self::write_text).
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    /// A JSON object with `type`, `place`, `objections` and `fields`.
    pub fn to_json(&self) -> Json {
        let Place { ag, block, daddr, ino, file_block } = self.place;
        json!({
            "type": self.structure.kind.name(),
            "place": {
                "ag": ag.map(AgNumber::get),
                "block": block.map(AgBlock::get),
                "daddr": daddr.map(Daddr::get),
                "inode": ino.map(Ino::get),
                "file_block": file_block.map(FileBlock::get),
            },
            "objections": self.structure.objections,
            "fields": json::fields(&self.structure.fields),
        })
    }
}

/// Decodes the requested structure of a device. If the volume is too damaged to be opened, only the superblock and raw
/// sectors can be requested.
///
/// # Errors
/// The structure could not be located or read. Damage of the structure itself is not an error.
pub fn dump_device(device: Arc<dyn Device>, request: &Request) -> Result<Dump> {
    match Volume::open_unverified(Arc::clone(&device)) {
        Ok(volume) => dump(&volume, request),
        Err(error) => byaddress::without_volume(&*device, request).unwrap_or(Err(error)),
    }
}

/// Decodes the requested structure of a volume.
///
/// # Errors
/// The structure could not be located or read. Damage of the structure itself is not an error.
pub fn dump(volume: &Volume, request: &Request) -> Result<Dump> {
    let geometry = volume.geometry();
    match &request.target {
        Target::Superblock(ag) => {
            let located = locate::header(volume, *ag, 0)?;
            let structure = match ag.get() {
                0 => headers::superblock(&located.bytes),
                _ => headers::secondary(&located.bytes, geometry),
            };
            Ok(located.dump(structure))
        }
        Target::Agf(ag) => dump_header(volume, *ag, 1, headers::agf),
        Target::Agi(ag) => dump_header(volume, *ag, 2, headers::agi),
        Target::Agfl(ag) => dump_header(volume, *ag, 3, headers::agfl),
        Target::Tree { tree, ag, block } => dump_tree(volume, *tree, *ag, block),
        Target::Inode(file) => dump_inode(volume, locate::ino(volume, file)?),
        Target::Bmbt { file, fork, children } => {
            dump_bmbt(volume, locate::ino(volume, file)?, *fork, children)
        }
        Target::Extents { file, fork } => listing::extents(volume, locate::ino(volume, file)?, *fork),
        Target::FreeSpace(ag) => listing::free_space(volume, *ag),
        Target::Dir(file, block) => dump_fork(volume, file, ForkKind::Data, *block),
        Target::Attr(file, block) => dump_fork(volume, file, ForkKind::Attr, *block),
        Target::Symlink(file, block) => dump_symlink(volume, locate::ino(volume, file)?, *block),
        Target::Dquot(kind, id) => dquot::dump(volume, *kind, *id),
        Target::Log(block) => logblock::dump(volume, *block),
        Target::Block(ag, block) => {
            let located = locate::ag_block(volume, *ag, *block)?;
            byaddress::dump(volume, located.daddr, geometry.block_size as usize, request.as_type)
        }
        Target::FsBlock(number) => {
            let (ag, block) = geometry.split_fs_block(*number).ok_or_else(|| {
                Error::unfit(errno::EINVAL, format!("block {number:#x} is outside of the volume"))
            })?;
            let daddr = geometry.ag_block_daddr(ag, block);
            byaddress::dump(volume, daddr, geometry.block_size as usize, request.as_type)
        }
        Target::Daddr(daddr) => byaddress::dump(volume, *daddr, 512, request.as_type),
    }
}

impl Located {
    /// Adds the place of these bytes to the structure that was decoded from them.
    pub fn dump(&self, structure: Structure) -> Dump {
        Dump { place: Place { daddr: Some(self.daddr), ..self.place }, structure }
    }
}

type DecodeHeader = fn(&[u8], &Geometry, AgNumber) -> Structure;

fn dump_header(volume: &Volume, ag: AgNumber, sector: u32, decode: DecodeHeader) -> Result<Dump> {
    let located = locate::header(volume, ag, sector)?;
    Ok(located.dump(decode(&located.bytes, volume.geometry(), ag)))
}

fn dump_tree(volume: &Volume, tree: AgBtree, ag: AgNumber, block: &TreeBlock) -> Result<Dump> {
    let kind = tree.block_type();
    let geometry = volume.geometry();
    let (located, level) = match block {
        TreeBlock::Block(block) => (locate::ag_block(volume, ag, *block)?, None),
        TreeBlock::Path(children) => {
            let (root, level) = tree_root(volume, tree, ag)?;
            let root = locate::ag_block(volume, ag, root)?;
            descend(children, (root, level), kind, geometry, |pointer| {
                let block = u32::try_from(pointer).unwrap_or(u32::MAX);
                locate::ag_block(volume, ag, AgBlock(block))
            })?
        }
    };
    let identity = locate::identity(geometry, located.daddr, None);
    Ok(located.dump(btree::block(kind, &located.bytes, geometry, identity, level)))
}

/// The root of a btree and its level according to the header of the AG, which may be damaged.
pub(crate) fn tree_root(volume: &Volume, tree: AgBtree, ag: AgNumber) -> Result<(AgBlock, Option<u16>)> {
    let (sector, root, level, present) = match tree {
        AgBtree::Bnobt => (1, "bnoroot", "bnolevel", true),
        AgBtree::Cntbt => (1, "cntroot", "cntlevel", true),
        AgBtree::Rmapbt => (1, "rmaproot", "rmaplevel", volume.geometry().features.rmapbt()),
        AgBtree::Refcountbt => (1, "refcntroot", "refcntlevel", volume.geometry().features.reflink()),
        AgBtree::Inobt => (2, "root", "level", true),
        AgBtree::Finobt => (2, "free_root", "free_level", volume.geometry().features.finobt()),
    };
    if !present {
        let message = format!("the volume has no {}: the feature is not enabled", tree.block_type().name());
        return Err(Error::unfit(errno::EINVAL, message));
    }
    let header = if sector == 1 { headers::agf } else { headers::agi };
    let fields = dump_header(volume, ag, sector, header)?.structure.fields;
    let number = |name| fields.get(name).and_then(Value::number).and_then(|n| u32::try_from(n).ok());
    // Null becomes a block number that the reader refuses.
    let root = number(root).unwrap_or(u32::MAX);
    let level = number(level).and_then(|levels| u16::try_from(levels.checked_sub(1)?).ok());
    Ok((AgBlock(root), level))
}

/// Descends from a root by the indices of pointers, counted from 1. Returns a block and its required level.
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
        let pointer = child_of(&format!("{} {}", located.place, kind.name()), &pointers, *child)?;
        located = read(pointer)?;
        level = Some(found.saturating_sub(1));
    }
    Ok((located, level))
}

/// The pointer with this index, counted from 1. `what` is the block for messages.
fn child_of(what: &str, pointers: &[u64], child: usize) -> Result<u64> {
    let pointer = child.checked_sub(1).and_then(|index| pointers.get(index));
    pointer.copied().ok_or_else(|| {
        let children = match pointers.len() {
            0 => "the block is a leaf".into(),
            count => format!("the children are 1 to {count}"),
        };
        Error::unfit(errno::EINVAL, format!("{what}: no child {child}: {children}"))
    })
}

fn dump_inode(volume: &Volume, ino: Ino) -> Result<Dump> {
    let located = locate::inode(volume, ino)?;
    let structure = inode::inode(&located.bytes, volume.geometry(), ino);
    Ok(located.dump(structure))
}

/// All inodes of a block.
pub(crate) fn inodes(volume: &Volume, located: &Located) -> Structure {
    let geometry = volume.geometry();
    let size = (geometry.inode_size as usize).max(512);
    let first = geometry.split_daddr(located.daddr).and_then(|(ag, block)| {
        let ag_ino = geometry.first_ag_ino(block)?;
        let offset = (located.daddr.get() - geometry.ag_block_daddr(ag, block).get()) << 9;
        Some(geometry.ino(ag, AgIno(ag_ino.get() + (offset >> geometry.inode_log) as u32)))
    });
    let first = first.unwrap_or_default();
    let inodes: Vec<Structure> = (located.bytes.chunks(size).zip(0..))
        .map(|(slot, index)| inode::inode(slot, geometry, Ino(first.get() + index)))
        .collect();
    if let [only] = inodes.as_slice() {
        return only.clone();
    }
    let mut structure = Structure::new(Type::Inode, Struct::new());
    let mut list = Vec::new();
    for (inode, index) in inodes.into_iter().zip(first.get()..) {
        let objections = inode.objections.into_iter().map(|objection| format!("inode {index}: {objection}"));
        structure.objections.extend(objections);
        list.push(inode.fields.into());
    }
    structure.fields.push("inodes", Value::List(list));
    structure
}

fn dump_bmbt(volume: &Volume, ino: Ino, kind: ForkKind, children: &[usize]) -> Result<Dump> {
    let geometry = volume.geometry();
    let slot = locate::inode(volume, ino)?;
    let view = locate::view(volume, &slot)?;
    let (level, pointers) = inode::root_pointers(&view, kind).ok_or_else(|| {
        let message = format!("inode {ino}: the format of this fork is not btree");
        Error::unfit(errno::EINVAL, message)
    })?;
    let Some((child, children)) = children.split_first() else {
        let mut structure = Structure::new(Type::Bmbt, inode::root(view.fork_bytes(kind), geometry));
        structure.check(Dinode::verify(&slot.bytes, geometry, ino));
        return Ok(slot.dump(structure));
    };
    let read = |pointer: u64| {
        let found = geometry.split_fs_block(base::FsBlock(pointer));
        let (ag, block) = found.ok_or_else(|| {
            let message = format!("inode {ino}: the pointer {pointer:#x} is outside of the volume");
            Error::unfit(errno::EFSCORRUPTED, message)
        })?;
        locate::ag_block(volume, ag, block)
    };
    let pointer = child_of(&format!("inode {ino}: bmbt root"), &pointers, *child)?;
    let first = (read(pointer)?, Some(level.saturating_sub(1)));
    let (located, level) = descend(children, first, Type::Bmbt, geometry, read)?;
    let identity = locate::identity(geometry, located.daddr, Some(ino));
    let structure = btree::block(Type::Bmbt, &located.bytes, geometry, identity, level);
    Ok(Located { place: located.place.of_inode(ino), ..located }.dump(structure))
}

/// A block of a directory or of attributes, or a list of the blocks.
fn dump_fork(volume: &Volume, file: &FileSelector, kind: ForkKind, block: Option<FileBlock>) -> Result<Dump> {
    let ino = locate::ino(volume, file)?;
    let geometry = volume.geometry();
    let Some(block) = block else { return listing::fork(volume, ino, kind) };
    let per_block = if kind == ForkKind::Data { 1 << geometry.dir_block_log } else { 1 };
    let blocks = locate::fork_blocks(volume, ino, kind, block, per_block)?;
    let decode = if kind == ForkKind::Data { dir::block } else { attr::block };
    Ok(blocks.located.dump(decode(&blocks.located.bytes, geometry, blocks.at)))
}

/// The blocks of a symlink target from `block` to the end of its extent, which have one header.
fn dump_symlink(volume: &Volume, ino: Ino, block: FileBlock) -> Result<Dump> {
    let geometry = volume.geometry();
    let slot = locate::inode(volume, ino)?;
    let size = locate::view(volume, &slot)?.core.size.get();
    let size = u32::try_from(size).unwrap_or(u32::MAX).min(format::symlink::MAX_TARGET);
    let max = format::symlink::block_count(size, geometry).max(1);
    let extent = listing::extent_at(volume, &slot, block)?;
    let count = u32::try_from(extent.end().get() - block.get()).unwrap_or(u32::MAX).min(max);
    let blocks = locate::fork_blocks(volume, ino, ForkKind::Data, block, count)?;
    Ok(blocks.located.dump(attr::symlink_block(&blocks.located.bytes, geometry, blocks.at)))
}
