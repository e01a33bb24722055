//! Extended attributes of every format, ACLs, labels.
//!
//! `listxattr` returns at most 64 KiB of names, so no inode here has more.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::XattrFlags;

use super::Fill;
use super::dirs::same_hash_name;

/// Attributes in the inode or in one block, all namespaces, ACLs and labels.
pub fn small(fill: &mut Fill) -> Result<()> {
    fill.dir("attrs")?;
    let inline = file(fill, "inline")?;
    set(&inline, b"user.short", b"value")?;
    set(&inline, b"user.empty", b"")?;
    set(&inline, b"trusted.t", b"\x00\x01\x02")?;
    set(&inline, b"security.s", b"label\0")?;

    // Removed again: an empty attribute fork.
    let gone = file(fill, "gone")?;
    set(&gone, b"user.a", b"1")?;
    rustix::fs::removexattr(&gone, "user.a")?;

    let leaf = file(fill, "leaf")?;
    for i in 0..(fill.block / 2 / 40).min(400) {
        set(&leaf, format!("user.leaf{i:04}").as_bytes(), &fill.bytes(20))?;
    }
    labels(fill)?;
    acls(fill)?;
    names(fill)?;

    let equal = file(fill, "equal-hashes")?;
    let count = if fill.equal_hashes > 1000 { 300 } else { (fill.block / 64).min(60) as u32 };
    for i in 0..count {
        let mut name = b"user.".to_vec();
        name.extend(same_hash_name(b"aaaabbbbccccdddd", i));
        set(&equal, &name, &i.to_le_bytes())?;
    }
    remote(fill)?;
    beside_other_forks(fill)
}

/// Attributes in node format, with and without holes.
pub fn large(fill: &mut Fill) -> Result<()> {
    let node = file(fill, "node")?;
    // Names and values that fill five blocks, with at most 250 names.
    let count = 240;
    let len = (5 * fill.block / count).clamp(100, 3 * fill.block / 5) as usize;
    for i in 0..count {
        set(&node, format!("user.node{i:04}").as_bytes(), &fill.bytes(len))?;
    }
    let holes = file(fill, "node-holes")?;
    for i in 0..count {
        set(&holes, format!("trusted.{i:04}").as_bytes(), &fill.bytes(len))?;
    }
    for i in (0..count).filter(|i| i % 3 == 1 || (50..120).contains(i)) {
        rustix::fs::removexattr(&holes, format!("trusted.{i:04}"))?;
    }
    Ok(())
}

/// Attribute forks with more extents than fit the inode. The free space must be fragmented.
pub fn tall(fill: &mut Fill) -> Result<()> {
    let many_remote = file(fill, "btree-remote")?;
    let count = (fill.fork_extents * 5 / 4 * fill.block / 65536).max(4);
    for i in 0..count {
        set(&many_remote, format!("user.r{i:04}").as_bytes(), &fill.bytes(65536))?;
    }
    // Values just too small to be remote: one block each. The data fork shares the inode.
    let many_blocks = file(fill, "btree-blocks")?;
    std::fs::write(&many_blocks, b"data too")?;
    let len = (fill.block * 7 / 10) as usize;
    for i in 0..fill.fork_extents * 5 / 4 {
        set(&many_blocks, format!("user.b{i:04}").as_bytes(), &fill.bytes(len))?;
    }
    Ok(())
}

fn labels(fill: &mut Fill) -> Result<()> {
    let label = file(fill, "label")?;
    set(&label, b"security.selinux", b"system_u:object_r:etc_t:s0\0")?;
    // File capabilities, version 2: effective bit, then permitted and inheritable sets.
    let mut capability = vec![1, 0, 0, 2];
    capability.extend_from_slice(&[0x00, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    set(&label, b"security.capability", &capability)
}

/// Remote values, from the smallest to the largest.
fn remote(fill: &mut Fill) -> Result<()> {
    let remote = file(fill, "remote")?;
    let sizes = [fill.block * 3 / 4, fill.block, fill.block + 1, 2 * fill.block, 65535, 65536];
    for size in sizes.into_iter().filter(|s| *s <= 65536) {
        set(&remote, format!("user.remote{size}").as_bytes(), &fill.bytes(size as usize))?;
    }
    // Values replaced by a shorter and a longer one.
    set(&remote, b"user.changed", &fill.bytes(30000))?;
    set(&remote, b"user.changed", b"short now")?;
    set(&remote, b"user.grown", b"short")?;
    set(&remote, b"user.grown", &fill.bytes(9000))
}

fn beside_other_forks(fill: &mut Fill) -> Result<()> {
    let dir = fill.root.join("attrs/dir");
    std::fs::create_dir(&dir)?;
    set(&dir, b"user.on-a-directory", b"yes")?;
    fill.link(&dir, (0..3u8).map(|i| vec![b'a' + i]))?;
    let link = fill.root.join("attrs/symlink");
    std::os::unix::fs::symlink("inline", &link)?;
    set(&link, b"trusted.on-a-symlink", b"yes")?;
    // The attribute moves an inline target out of the inode.
    let pushed = fill.root.join("attrs/symlink-pushed-out");
    std::os::unix::fs::symlink("x".repeat((fill.fork_extents * 16 - 8).min(1023) as usize), &pushed)?;
    set(&pushed, b"trusted.pusher", &fill.bytes(60))
}

/// Names of maximum length, and with bytes that are not text.
fn names(fill: &mut Fill) -> Result<()> {
    let path = file(fill, "names")?;
    set(&path, &fill.rng.name("user.", 255), b"longest")?;
    set(&path, b"user.\xff\xfe", b"not utf-8")?;
    set(&path, b"user.new\nline", b"\n")?;
    set(&path, b"user.same", b"user")?;
    set(&path, b"trusted.same", b"trusted")?;
    set(&path, b"security.same", b"security")
}

fn acls(fill: &mut Fill) -> Result<()> {
    let dir = fill.root.join("attrs/acl-dir");
    std::fs::create_dir(&dir)?;
    set(&dir, b"system.posix_acl_default", &acl(3))?;
    std::fs::write(dir.join("inherits"), b"")?;
    std::fs::create_dir(dir.join("inherits-too"))?;
    let access = file(fill, "acl")?;
    set(&access, b"system.posix_acl_access", &acl(2))?;
    let long = file(fill, "acl-long")?;
    set(&long, b"system.posix_acl_access", &acl(if fill.full { 500 } else { 60 }))
}

/// Returns an ACL with `users` named users in the format of `system.posix_acl_*`: version 2, then tag, permissions, id.
fn acl(users: u32) -> Vec<u8> {
    const UNDEFINED: u32 = u32::MAX;
    let mut out = 2u32.to_le_bytes().to_vec();
    let mut entry = |tag: u16, permissions: u16, id: u32| {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&permissions.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    };
    entry(0x01, 6, UNDEFINED);
    for user in 0..users {
        entry(0x02, (user % 8) as u16, 1000 + user);
    }
    entry(0x04, 4, UNDEFINED);
    entry(0x08, 5, 100);
    entry(0x10, 7, UNDEFINED);
    entry(0x20, 4, UNDEFINED);
    out
}

fn file(fill: &Fill, name: &str) -> Result<PathBuf> {
    let path = fill.root.join("attrs").join(name);
    fill.file(&path)?;
    Ok(path)
}

fn set(path: &Path, name: &[u8], value: &[u8]) -> Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .with_context(|| format!("{} of {}, {} bytes", name.escape_ascii(), path.display(), value.len()))
}
