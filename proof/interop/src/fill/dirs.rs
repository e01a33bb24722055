//! Directories of every format, unusual names, names with the same hash, deep paths.

use std::path::Path;

use anyhow::Result;
use block::fsxattr;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{Fill, open_dir};

/// Size of a directory entry without its name: inode number, length, type, tag.
const ENTRY_OVERHEAD: u64 = 12;
/// Size of a leaf entry: hash and address.
const LEAF_ENTRY: u64 = 8;

/// Shortform, block and leaf directories, and unusual names.
pub fn small(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("dirs")?;
    fill.dir("dirs/empty")?;

    fill.dir("dirs/short")?;
    fill.link(&dir.join("short"), names("s", 4, 5))?;

    fill.dir("dirs/block")?;
    let count = fill.dir_block / 2 / (32 + LEAF_ENTRY);
    fill.link(&dir.join("block"), names("block", count, 18))?;

    // Names removed again: free space inside a block, listed in its bestfree table.
    fill.dir("dirs/block-holes")?;
    fill.link(&dir.join("block-holes"), names("b", count, 18))?;
    unlink_every(&dir.join("block-holes"), "b", count, 18, |i| i % 3 == 0 || (20..30).contains(&i))?;

    // From block back to shortform format.
    fill.dir("dirs/short-again")?;
    fill.link(&dir.join("short-again"), names("n", count, 18))?;
    unlink_every(&dir.join("short-again"), "n", count, 18, |i| i > 1)?;

    fill.dir("dirs/leaf")?;
    let count = 3 * fill.dir_block / (ENTRY_OVERHEAD + 200);
    fill.link(&dir.join("leaf"), names("leaf", count, 200))?;

    bytes(fill, &dir)?;
    equal_hashes(fill, &dir)?;
    deep(fill, &dir)?;
    sub_directories(fill, &dir)
}

/// Directories in node format, with and without holes, and one with a hash tree of two levels if blocks are small.
pub fn large(fill: &mut Fill) -> Result<()> {
    let dir = fill.root.join("dirs");
    // One and a half blocks of leaf entries: a leaf directory has one block.
    let count = fill.dir_block / LEAF_ENTRY * 3 / 2;
    fill.dir("dirs/node")?;
    fill.link(&dir.join("node"), names("node", count, 14))?;

    fill.dir("dirs/node-holes")?;
    fill.link(&dir.join("node-holes"), names("h", count, 60))?;
    unlink_every(&dir.join("node-holes"), "h", count, 60, |i| {
        i > count / 3 && i < count * 2 / 3 || i % 5 == 0
    })?;

    if fill.dir_block <= 2048 {
        let fanout = fill.dir_block / LEAF_ENTRY;
        fill.dir("dirs/node-two-levels")?;
        fill.link(&dir.join("node-two-levels"), names("t", fanout * fanout * 6 / 5, 9))?;
    }
    Ok(())
}

/// A directory with more extents than fit its inode. The free space must be fragmented.
pub fn tall(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("dirs/btree")?;
    let fd = open_dir(&dir)?;
    let per_block = (fill.dir_block / (ENTRY_OVERHEAD + 250)).max(1);
    // A block adds an extent or more, unless larger free extents are left. Parent pointers may take the space first.
    for block in 0..fill.fork_extents * 2 + 40 {
        fill.link(&dir, names(&format!("btree{block:04}"), per_block, 250))?;
        if u64::from(fsxattr::get(&fd)?.nextents) > fill.fork_extents + 2 {
            break;
        }
    }
    Ok(())
}

/// Enough inodes for an inobt of two levels if blocks are small, with whole chunks and single inodes freed.
pub fn many_inodes(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("inodes")?;
    let fd = open_dir(&dir)?;
    let count = if fill.block <= 1024 { 6000 } else { 1500 };
    for i in 0..count {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(rustix::fs::openat(&fd, format!("i{i:05}"), flags, Mode::from(0o600))?);
    }
    for i in 0..count {
        if (400..700).contains(&i) || i % 7 == 0 {
            rustix::fs::unlinkat(&fd, format!("i{i:05}"), AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Names with all bytes that are permitted.
fn bytes(fill: &mut Fill, dir: &Path) -> Result<()> {
    let every = fill.dir("dirs/bytes")?;
    fill.link(&every, (1..=255u8).filter(|b| !matches!(b, b'/' | b'.')).map(|b| vec![b]))?;
    let names: [&[u8]; 12] = [
        b"new\nline",
        b"tab\tand \\ backslash",
        b" leading and trailing ",
        b"-rf",
        b"...",
        "\u{e9}\u{4e2d}\u{1f980}".as_bytes(),
        b"\xc3\x28 not utf-8 \xff\xfe",
        b"\"quoted\" 'both' $HOME `x`",
        b"\x1b[31mred\x1b[0m",
        &[b'm'; 255],
        &[0xff; 255],
        b"*?[a-z]",
    ];
    std::fs::create_dir(dir.join("awkward"))?;
    fill.link(&dir.join("awkward"), names.map(<[u8]>::to_vec))
}

/// Many names with the same hash. In a group of four bytes, the low bit of one byte and the high bit of the next are at
/// the same position of the hash, so flipping both does not change it.
fn equal_hashes(fill: &mut Fill, dir: &Path) -> Result<()> {
    std::fs::create_dir(dir.join("equal-hashes"))?;
    let base = b"mmmmnnnnoooopppp";
    fill.link(&dir.join("equal-hashes"), (0..fill.equal_hashes).map(|i| same_hash_name(base, i)))
}

/// Returns the `i`th of 4,096 names with the hash of `base`.
pub fn same_hash_name(base: &[u8; 16], i: u32) -> Vec<u8> {
    let mut name = base.to_vec();
    for bit in 0..12 {
        if i >> bit & 1 == 1 {
            let at = bit / 3 * 4 + bit % 3;
            name[at] ^= 0x01;
            name[at + 1] ^= 0x80;
        }
    }
    name
}

/// Nested directories with a path longer than `PATH_MAX`.
fn deep(fill: &mut Fill, dir: &Path) -> Result<()> {
    std::fs::create_dir(dir.join("deep"))?;
    let mut fd = open_dir(&dir.join("deep"))?;
    for depth in 0..if fill.full { 24 } else { 6 } {
        let name = fill.rng.name(&format!("level{depth:02}-"), 200);
        rustix::fs::mkdirat(&fd, name.as_slice(), Mode::from(0o755))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fd = rustix::fs::openat(&fd, name.as_slice(), flags, Mode::empty())?;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&fd, "bottom", flags, Mode::from(0o644))?;
    rustix::io::write(file, b"the bottom\n")?;
    Ok(())
}

/// Directories spread over the AGs, each with a file, so that every AG has inodes.
fn sub_directories(fill: &mut Fill, dir: &Path) -> Result<()> {
    let parent = dir.join("spread");
    std::fs::create_dir(&parent)?;
    for i in 0..if fill.full { 40 } else { 8 } {
        let child = parent.join(format!("d{i:02}"));
        std::fs::create_dir(&child)?;
        std::fs::write(child.join("file"), fill.bytes(i * 37))?;
    }
    // Moved to another parent: `..` and the parent pointer change.
    std::fs::rename(parent.join("d01"), dir.join("moved"))?;
    std::fs::rename(parent.join("d02/file"), dir.join("moved/file"))?;
    Ok(())
}

/// Returns `count` different names of `len` bytes that begin with `prefix`.
fn names(prefix: &str, count: u64, len: usize) -> impl Iterator<Item = Vec<u8>> {
    let prefix = prefix.to_owned();
    (0..count).map(move |i| name(&prefix, i, len))
}

fn name(prefix: &str, i: u64, len: usize) -> Vec<u8> {
    let mut name = format!("{prefix}{i:05}-").into_bytes();
    // Letters that depend on the number, for different hashes; then one repeated letter, so that images compress.
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while name.len() < len.min(24) {
        x = x.rotate_left(5).wrapping_mul(31);
        name.push(b'a' + (x >> 40) as u8 % 26);
    }
    name.resize(len.max(name.len()), b'a' + (i % 26) as u8);
    name
}

fn unlink_every(dir: &Path, prefix: &str, count: u64, len: usize, which: impl Fn(u64) -> bool) -> Result<()> {
    let fd = open_dir(dir)?;
    for i in (0..count).filter(|i| which(*i)) {
        rustix::fs::unlinkat(&fd, name(prefix, i, len).as_slice(), AtFlags::empty())?;
    }
    Ok(())
}
