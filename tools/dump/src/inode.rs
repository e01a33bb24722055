//! Inodes. As in `xfs_db`, `core` is the core, `v3` the fields that version 3 added, `u3` the data fork and `a` the
//! attribute fork.

use base::Ino;
use format::Geometry;
use format::btree::{BmapKey, BmapRoot};
use format::dir::shortform::Shortform;
use format::extent::RawExtent;
use format::inode::{self, Dinode, FileType, ForkKind, RawInode, flags, flags2};
use format::ondisk::OnDisk;

use crate::fields::{self, Source};
use crate::headers::numbers;
use crate::structure::Structure;
use crate::types::Type;
use crate::value::{Struct, Value};
use crate::{attr, btree, dir};

/// Names of fork formats.
const FORMATS: [&str; 5] = ["dev", "local", "extents", "btree", "uuid"];

/// Names of the types of metadata inodes (`enum xfs_metafile_type` in `xfs_format.h`).
const METATYPES: [&str; 7] = ["unknown", "dir", "usrquota", "grpquota", "prjquota", "rtbitmap", "rtsummary"];

/// Names of the bits of `flags`.
const FLAGS: [(&str, u16); 15] = [
    ("newrtbm", flags::NEWRTBM),
    ("prealloc", flags::PREALLOC),
    ("realtime", flags::REALTIME),
    ("immutable", flags::IMMUTABLE),
    ("append", flags::APPEND),
    ("sync", flags::SYNC),
    ("noatime", flags::NOATIME),
    ("nodump", flags::NODUMP),
    ("rtinherit", flags::RTINHERIT),
    ("projinherit", flags::PROJINHERIT),
    ("nosymlinks", flags::NOSYMLINKS),
    ("extsz", flags::EXTSIZE),
    ("extszinherit", flags::EXTSZINHERIT),
    ("nodefrag", flags::NODEFRAG),
    ("filestream", flags::FILESTREAM),
];

/// Names of the bits of `flags2`.
const FLAGS2: [(&str, u64); 6] = [
    ("reflink", flags2::REFLINK),
    ("cowextsz", flags2::COWEXTSIZE),
    ("dax", flags2::DAX),
    ("bigtime", flags2::BIGTIME),
    ("nrext64", flags2::NREXT64),
    ("metadata", flags2::METADATA),
];

/// An inode. `ino` is its expected number.
pub fn inode(bytes: &[u8], geometry: &Geometry, ino: Ino) -> Structure {
    let whole = bytes.get(..geometry.inode_size as usize).unwrap_or(bytes);
    let Some(view) = Dinode::view(whole, geometry) else {
        let fields = fields::decode::<RawInode>(Source::new(whole));
        return Structure::new(Type::Inode, fields).with_check(Dinode::verify(whole, geometry, ino));
    };
    let mut structure = Structure::new(Type::Inode, core(whole, &view));
    structure.check(Dinode::verify(whole, geometry, ino));
    fork(&view, geometry, ForkKind::Data, &mut structure);
    if view.core.forkoff != 0 {
        fork(&view, geometry, ForkKind::Attr, &mut structure);
    }
    structure
}

/// All fields except the forks.
fn core(whole: &[u8], view: &Dinode<'_>) -> Struct {
    let source = Source { bigtime: view.bigtime(), ..Source::new(whole) };
    let (mut core, mut v3, mut all) = (Struct::new(), Struct::new(), Struct::new());
    let mut in_core = true;
    for field in RawInode::FIELDS {
        let Some(value) = fields::value(field, source) else { continue };
        if field.name == "next_unlinked" {
            all.push("core", std::mem::take(&mut core).into());
            all.push(field.name, value);
            in_core = false;
        } else if in_core {
            core_field(field.name, value, view, &mut core);
        } else {
            v3.push(field.name, value);
        }
    }
    bits(view.core.flags2.get(), &FLAGS2, &mut v3);
    all.push("v3", v3.into());
    all
}

/// A field of the core. The name of some fields depends on the features of the inode.
fn core_field(name: &'static str, value: Value, view: &Dinode<'_>, core: &mut Struct) {
    let (nrext64, metadata) = (view.wide_counts(), view.core.flags2.get() & flags2::METADATA != 0);
    match name {
        "format" | "aformat" => core.push(name, named(&value, &FORMATS)),
        "onlink" if metadata => core.push("metatype", named(&value, &METATYPES)),
        "big_nextents" if nrext64 => core.push("nextents", value),
        "nextents" if nrext64 => core.push("naextents", value),
        "big_nextents" => push_unless_zero("v3_pad", value, core),
        "naextents" if nrext64 => push_unless_zero("nrext64_pad", value, core),
        "flags" => bits(view.core.flags.get(), &FLAGS, core),
        _ => core.push(name, value),
    }
}

fn push_unless_zero(name: &'static str, value: Value, fields: &mut Struct) {
    if value.number() != Some(0) {
        fields.push(name, value);
    }
}

fn named(value: &Value, words: &[&'static str]) -> Value {
    let number = value.number().unwrap_or(0);
    let word = usize::try_from(number).ok().and_then(|index| words.get(index));
    word.map_or(Value::Uint(number), |word| Value::Named(number, word))
}

/// One field for each known flag, and one for all unknown flags, if there are any.
fn bits<W: Into<u64> + Copy>(word: W, known: &[(&'static str, W)], fields: &mut Struct) {
    let mut unknown = word.into();
    for (name, mask) in known {
        fields.push(*name, Value::bit(word.into(), (*mask).into()));
        unknown &= !(*mask).into();
    }
    if unknown != 0 {
        fields.push("unknown_flags", Value::Hex(unknown));
    }
}

/// The name of a fork, and its format, which has no meaning without an attribute fork.
pub fn fork_format(view: &Dinode<'_>, kind: ForkKind) -> (&'static str, u8) {
    match kind {
        ForkKind::Data => ("u3", view.core.format),
        ForkKind::Attr => ("a", view.core.aformat),
    }
}

fn fork(view: &Dinode<'_>, geometry: &Geometry, kind: ForkKind, structure: &mut Structure) {
    let bytes = view.fork_bytes(kind);
    let (name, format) = fork_format(view, kind);
    let value = match format {
        0 => Struct::from([("dev", Value::Hex(bytes.get(..4).map_or(0, fields::big_endian)))]).into(),
        1 => local(view, geometry, kind, structure),
        2 => extents(view, geometry, kind, structure),
        3 => Struct::from([("bmbt", root(bytes, geometry).into())]).into(),
        _ => Struct::from([("bytes", Value::Bytes(bytes.to_vec()))]).into(),
    };
    // Without an attribute fork the format has no meaning.
    let value = if kind == ForkKind::Attr && bytes.is_empty() { Value::Empty } else { value };
    structure.fields.push(name, value);
}

fn local(view: &Dinode<'_>, geometry: &Geometry, kind: ForkKind, structure: &mut Structure) -> Value {
    let bytes = view.fork_bytes(kind);
    if kind == ForkKind::Attr {
        let (fields, result) = attr::shortform(bytes, geometry);
        structure.check(result);
        return Struct::from([("sfattr", fields.into())]).into();
    }
    let size = usize::try_from(view.core.size.get()).unwrap_or(usize::MAX).min(bytes.len());
    let bytes = bytes.get(..size).unwrap_or(bytes);
    match view.file_type() {
        Some(FileType::Directory) => {
            structure.check(Shortform::verify(bytes, geometry).and_then(|directory| directory.audit()));
            Struct::from([("sfdir3", dir::shortform(bytes, geometry).into())]).into()
        }
        Some(FileType::Symlink) => Struct::from([("symlink", Value::Text(bytes.to_vec()))]).into(),
        _ => Struct::from([("bytes", Value::Bytes(bytes.to_vec()))]).into(),
    }
}

/// A list of extents. The count is limited by the size of the fork.
fn extents(view: &Dinode<'_>, geometry: &Geometry, kind: ForkKind, structure: &mut Structure) -> Value {
    let bytes = view.fork_bytes(kind);
    let count = usize::try_from(view.extent_count(kind)).unwrap_or(usize::MAX);
    let count = count.min(bytes.len() / RawExtent::SIZE);
    if count == 0 {
        return Value::Empty;
    }
    let list = bytes.get(..count * RawExtent::SIZE).unwrap_or(&[]);
    if let Some(raw) = RawExtent::view_array(list, count) {
        structure.check(inode::verify_extents(raw, geometry));
    }
    let table = btree::table::<RawExtent>(Type::Bmbt, list, geometry, 0);
    Struct::from([("bmx", Value::Table(table))]).into()
}

/// The root of the bmap btree. Its count is limited by the size of the fork.
pub fn root(bytes: &[u8], geometry: &Geometry) -> Struct {
    let mut fields = fields::decode::<BmapRoot>(Source::new(bytes));
    let (keys, pointers) = root_parts(bytes);
    fields.push("keys", Value::Table(btree::table::<BmapKey>(Type::Bmbt, keys, geometry, 1)));
    fields.push("ptrs", numbers(pointers, 8, 1));
    fields
}

/// The keys and the pointers of a root.
fn root_parts(bytes: &[u8]) -> (&[u8], &[u8]) {
    let count = BmapRoot::view(bytes).map_or(0, |root| usize::from(root.numrecs.get()));
    let rest = bytes.get(BmapRoot::SIZE..).unwrap_or(&[]);
    let max = rest.len() / (BmapKey::SIZE + 8);
    let count = count.min(max);
    let keys = rest.get(..count * BmapKey::SIZE).unwrap_or(&[]);
    // Pointers begin after the maximum number of keys.
    let pointers = rest.get(max * BmapKey::SIZE..).and_then(|rest| rest.get(..count * 8)).unwrap_or(&[]);
    (keys, pointers)
}

/// The level and the pointers of the root; `None` if the fork is not in btree format.
pub fn root_pointers(view: &Dinode<'_>, kind: ForkKind) -> Option<(u16, Vec<u64>)> {
    const BTREE: u8 = 3;
    let (_, format) = fork_format(view, kind);
    let bytes = view.fork_bytes(kind);
    let level = BmapRoot::view(bytes).filter(|_| format == BTREE)?.level.get();
    Some((level, root_parts(bytes).1.chunks_exact(8).map(fields::big_endian).collect()))
}
