//! Many files, links or attributes, and a large sparse file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use model::Rng;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

/// Maximum bytes of attribute names, each with a NUL, that the kernel lists for one file.
const LISTED_MAX: usize = 64 << 10;

/// Creates `count` files: half of them in directories of a thousand, a quarter in small directories, a quarter in one
/// directory. Every tenth file has contents.
pub fn files(dir: &Path, count: u64) -> Result<()> {
    let mut rng = Rng::new(count);
    let one = super::folder(dir.join("one"))?;
    for number in 0..count {
        let size = if number % 10 == 0 { rng.below(3000) } else { 0 };
        let (parent, name) = match number % 4 {
            0 => (one.clone(), format!("file{number:07}")),
            1 => (dir.join(format!("few/{:03}/{:05}", number / 6400, number / 64)), number.to_string()),
            _ => (dir.join(format!("thousand/{:04}", number / 2000)), format!("f{number:x}")),
        };
        std::fs::create_dir_all(&parent)?;
        super::file(&parent.join(name), &rng.bytes(size as usize))?;
    }
    Ok(())
}

/// Creates `count` links to one file in one directory, and a hundredth of this number in other directories, to files
/// with 1, 2, 3 and more names.
pub fn links(dir: &Path, count: u64) -> Result<()> {
    let link = |from: &Path, to: &Path| {
        std::fs::hard_link(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))
    };
    let first = super::folder(dir.join("many"))?.join("first");
    super::file(&first, b"one file of many names")?;
    for number in 1..count {
        link(&first, &dir.join(format!("many/link{number:06}")))?;
    }
    let mut rng = Rng::new(count);
    let folders = 1 + count / 1000;
    for number in 0..folders {
        super::folder(dir.join(format!("folder{number:04}")))?;
    }
    let mut made = 0;
    for number in 0.. {
        let from = dir.join(format!("folder{:04}/file{number}", rng.below(folders)));
        super::file(&from, &rng.bytes(100))?;
        for name in 0..number {
            link(&from, &dir.join(format!("folder{:04}/file{number}-{name}", rng.below(folders))))?;
        }
        made += number;
        if made * 100 > count {
            break;
        }
    }
    link(&first, &dir.join("last"))
}

/// Creates `count` attributes: as many short ones on one file as can be listed, the rest on files, directories,
/// symlinks and devices, with values of all sizes.
pub fn attributes(dir: &Path, count: u64) -> Result<()> {
    let mut rng = Rng::new(count);
    let one = dir.join("one");
    super::file(&one, b"a file of many attributes")?;
    let short = |number: u64| format!("user.{number:x}");
    let mut listed = 0;
    let mut left = count;
    while left > count / 2 {
        let name = short(count - left);
        listed += name.len() + 1;
        if listed > LISTED_MAX {
            break;
        }
        set(&one, &name, &rng.bytes(3))?;
        left -= 1;
    }
    for number in 0.. {
        if left == 0 {
            return Ok(());
        }
        let path = dir.join(format!("file{number:05}"));
        special(&path, number)?;
        // Only files and directories may have user attributes.
        let space = if number % 5 < 2 { "user" } else { "trusted" };
        let here = (1 << rng.below(9)).min(left);
        for at in 0..here {
            let largest = if rng.one_in(100) { 65536 } else { 1 << rng.below(10) };
            let value = rng.below(largest + 1) as usize;
            set(&path, &format!("{space}.{at}{}", "n".repeat(rng.below(200) as usize)), &rng.bytes(value))?;
        }
        left -= here;
    }
    Ok(())
}

/// Creates a file of a type that depends on `number`.
fn special(path: &Path, number: u64) -> Result<()> {
    match number % 5 {
        0 => super::file(path, b"contents"),
        1 => super::folder(path.to_path_buf()).map(drop),
        2 => Ok(std::os::unix::fs::symlink("nowhere", path)?),
        3 => Ok(rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::from(0o600), 0x501)?),
        _ => Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from(0o600), 0)?),
    }
}

fn set(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::CREATE)
        .with_context(|| format!("{name} of {}", path.display()))
}

/// Creates a sparse file of `size` bytes with data at both ends, in the middle, and at random offsets between; a file
/// that is one hole; and one that ends with a hole.
pub fn sparse(dir: &Path, size: u64) -> Result<()> {
    let mut rng = Rng::new(size);
    let path = dir.join("sparse");
    let file = File::create_new(&path).with_context(|| path.display().to_string())?;
    file.write_all_at(&rng.bytes(300_000), 0)?;
    file.write_all_at(&rng.bytes(5_000_000), size / 2 - 1234)?;
    for _ in 0..2000 {
        let length = 1 + rng.below(9000) as usize;
        file.write_all_at(&rng.bytes(length), rng.below(size - 9000))?;
    }
    file.write_all_at(&rng.bytes(1), size - 1)?;
    File::create_new(dir.join("hole"))?.set_len(size)?;
    let ends = File::create_new(dir.join("ends-with-a-hole"))?;
    ends.write_all_at(b"beginning", 0)?;
    Ok(ends.set_len(size)?)
}
