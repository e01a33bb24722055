//! Devices, links, owners, times, flags, projects.

use std::path::Path;

use anyhow::{Context, Result};
use block::fsxattr::{self, FsXattr};
use rustix::fs::{AtFlags, CWD, FileType, Gid, IFlags, Mode, Timespec, Timestamps, Uid};

use super::Fill;

/// Creates everything except flags, some of which prevent further changes.
pub fn run(fill: &mut Fill) -> Result<()> {
    special(fill)?;
    symlinks(fill)?;
    hard_links(fill)?;
    owners(fill)?;
    times(fill)
}

fn special(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("special")?;
    let nodes = [
        ("null", FileType::CharacterDevice, 1, 3),
        ("block", FileType::BlockDevice, 8, 17),
        // The largest numbers: 14 bits of major and 18 of minor on disk, but majors above 511 are refused.
        ("large", FileType::BlockDevice, 0x1ff, 0x3_ffff),
        ("zero", FileType::CharacterDevice, 0, 0),
        ("fifo", FileType::Fifo, 0, 0),
        ("socket", FileType::Socket, 0, 0),
    ];
    for (name, kind, major, minor) in nodes {
        rustix::fs::mknodat(CWD, dir.join(name), kind, Mode::from(0o640), rustix::fs::makedev(major, minor))
            .context(name)?;
    }
    Ok(())
}

fn symlinks(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("symlinks")?;
    let inline = (fill.fork_extents * 16).min(1022) as usize;
    for len in [1, 59, inline - 1, inline, inline + 1, 968, 969, 1000, 1022, 1023] {
        let target = fill.rng.name("/t/", len);
        rustix::fs::symlinkat(target.as_slice(), CWD, dir.join(format!("len-{len:04}")))
            .or_else(|e| if e == rustix::io::Errno::EXIST { Ok(()) } else { Err(e) })?;
    }
    for (name, target) in [
        ("absolute", &b"/etc/passwd"[..]),
        ("up", b"../../../../../../etc/passwd"),
        ("dangling", b"nothing/here"),
        ("loop", b"loop"),
        ("bytes", b"\xff\xfe\n\x01"),
        ("dir", b"../dirs"),
    ] {
        rustix::fs::symlinkat(target, CWD, dir.join(name))?;
    }
    Ok(())
}

fn hard_links(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("hardlinks")?;
    let other = fill.dir("hardlinks-elsewhere")?;
    let first = dir.join("first");
    std::fs::write(&first, b"one content, many names\n")?;
    for i in 0..if fill.full { 300 } else { 20 } {
        std::fs::hard_link(&first, if i % 2 == 0 { &dir } else { &other }.join(format!("link{i}")))?;
    }
    // Links to other types of files.
    for (target, name) in
        [("special/fifo", "fifo"), ("symlinks/dangling", "symlink"), ("special/null", "device")]
    {
        rustix::fs::linkat(CWD, fill.root.join(target), CWD, dir.join(name), AtFlags::empty())?;
    }
    std::fs::hard_link(dir.join("link0"), fill.root.join("after-unlink"))?;
    std::fs::remove_file(dir.join("link2"))?;
    Ok(())
}

fn owners(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("owners")?;
    for (uid, gid, mode) in [
        (1, 2, 0o000),
        (1000, 1000, 0o4755),
        (65534, 65534, 0o2750),
        (u32::MAX - 1, u32::MAX - 1, 0o1777),
        (1 << 31, 70000, 0o7777),
    ] {
        let path = dir.join(format!("{uid}-{gid}"));
        fill.file(&path)?;
        rustix::fs::chownat(
            CWD,
            &path,
            Some(Uid::from_raw(uid)),
            Some(Gid::from_raw(gid)),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        rustix::fs::chmod(&path, Mode::from(mode))?;
    }
    let project = fill.dir("owners/project")?;
    set_project(&project, 0xdead_beef, FS_XFLAG_PROJINHERIT)?;
    std::fs::write(project.join("inherits"), b"")?;
    std::fs::create_dir(project.join("sub"))?;
    let low = dir.join("project-42");
    fill.file(&low)?;
    set_project(&low, 42, 0)
}

fn times(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("times")?;
    // The kernel clamps times to the range of the volume: 1901 to 2038, or to 2486 with bigtime.
    for (name, sec, nsec) in [
        ("epoch", 0, 0),
        ("before", -1, 999_999_999),
        ("first", i64::from(i32::MIN), 0),
        ("before-first", i64::from(i32::MIN) - 1000, 5),
        ("last-of-32-bits", i64::from(i32::MAX), 999_999_999),
        ("beyond-32-bits", i64::from(i32::MAX) + 1, 1),
        ("year-2200", 7_258_118_400, 123_456_789),
        ("last", 16_299_260_424, 0),
        ("beyond-all", 1 << 40, 7),
    ] {
        let path = dir.join(name);
        fill.file(&path)?;
        let time = Timespec { tv_sec: sec, tv_nsec: nsec };
        let access = Timespec { tv_sec: sec / 2, tv_nsec: 1 };
        let times = Timestamps { last_access: access, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).context(name)?;
    }
    Ok(())
}

const FS_XFLAG_PREALLOC: u32 = 0x2;
const FS_XFLAG_NODUMP: u32 = 0x80;
const FS_XFLAG_PROJINHERIT: u32 = 0x200;
const FS_XFLAG_NOSYMLINKS: u32 = 0x400;
const FS_XFLAG_EXTSIZE: u32 = 0x800;
const FS_XFLAG_EXTSZINHERIT: u32 = 0x1000;
const FS_XFLAG_NODEFRAG: u32 = 0x2000;
const FS_XFLAG_COWEXTSIZE: u32 = 0x1_0000;

/// Sets the inode flags.
pub fn flags(fill: &mut Fill) -> Result<()> {
    let dir = fill.dir("flags")?;
    let chattr = [
        ("append", IFlags::APPEND),
        ("immutable", IFlags::IMMUTABLE),
        ("no-dump", IFlags::NODUMP),
        ("no-atime", IFlags::NOATIME),
        ("sync", IFlags::SYNC),
    ];
    let extended = [
        ("prealloc", FS_XFLAG_PREALLOC),
        ("no-dump-too", FS_XFLAG_NODUMP),
        ("no-defrag", FS_XFLAG_NODEFRAG),
        ("extent-size", FS_XFLAG_EXTSIZE),
    ];
    for (name, flag) in extended {
        let path = dir.join(name);
        fill.file(&path)?;
        set_flags(&path, |x| {
            x.xflags |= flag;
            x.extsize = if flag == FS_XFLAG_EXTSIZE { 1 << 16 } else { 0 };
        })?;
    }
    let inherit = fill.dir("flags/inherit")?;
    set_flags(&inherit, |x| {
        x.xflags |= FS_XFLAG_EXTSZINHERIT | FS_XFLAG_NOSYMLINKS | FS_XFLAG_NODEFRAG;
        x.extsize = 1 << 16;
    })?;
    std::fs::write(inherit.join("inherits"), b"")?;
    let cow = dir.join("cow-extent-size");
    fill.file(&cow)?;
    // Fails on volumes without reflink.
    let _ = set_flags(&cow, |x| {
        x.xflags |= FS_XFLAG_COWEXTSIZE;
        x.cowextsize = 1 << 17;
    });
    for (name, flag) in chattr {
        let path = dir.join(name);
        let file = fill.file(&path)?;
        std::fs::write(&path, name)?;
        rustix::fs::ioctl_setflags(&file, flag).context(name)?;
    }
    Ok(())
}

fn set_project(path: &Path, project: u32, flags: u32) -> Result<()> {
    set_flags(path, |x| {
        x.projid = project;
        x.xflags |= flags;
    })
}

fn set_flags(path: &Path, change: impl FnOnce(&mut FsXattr)) -> Result<()> {
    let file = std::fs::File::open(path)?;
    let mut value = fsxattr::get(&file)?;
    change(&mut value);
    fsxattr::set(&file, value).with_context(|| path.display().to_string())
}
