//! The operations: calls of the engine on what belongs to an [`Actor`].
//!
//! An operation that uses something up, such as `unlink`, has it prepared for all rounds before the first one. So the
//! rounds of both sides follow each other, and nothing else happens in between.

use volume::{Cookie, NewFile, OpenOptions, Result, SetAttribute, SetMetadata};

use crate::actor::{ATTRIBUTE, Actor, LONG_ATTRIBUTE, PAGE};

/// A call of the engine in a round.
type Call = for<'a, 'v> fn(&'a Actor<'v>, usize) -> Result<()>;

/// An operation.
#[derive(Debug)]
pub struct Operation {
    /// Name in reports.
    pub name: &'static str,
    /// Determines the number of rounds.
    pub cost: Cost,
    /// What is needed for a round.
    pub prepare: Option<Call>,
    /// The operation itself.
    pub run: Call,
}

/// The order of magnitude of the instructions of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Some hundreds: it changes nothing.
    Read,
    /// Ten thousand: it is a transaction.
    Change,
}

impl Cost {
    /// Rounds before the first traced one. Afterwards everything is in memory, and what becomes per-CPU when several
    /// CPUs use it is so.
    pub fn warm(self) -> usize {
        match self {
            // A lock that is read 256 times is not taken any more.
            Self::Read => 150,
            Self::Change => 3,
        }
    }

    /// Factor for the rounds of a measurement.
    pub fn measured(self) -> usize {
        match self {
            Self::Read => 50,
            Self::Change => 1,
        }
    }
}

const fn reading(name: &'static str, run: Call) -> Operation {
    Operation { name, cost: Cost::Read, prepare: None, run }
}

const fn changing(name: &'static str, run: Call) -> Operation {
    Operation { name, cost: Cost::Change, prepare: None, run }
}

const fn prepared(name: &'static str, prepare: Call, run: Call) -> Operation {
    Operation { name, cost: Cost::Change, prepare: Some(prepare), run }
}

/// A read of what does not fit the inode.
const fn reading_blocks(name: &'static str, run: Call) -> Operation {
    Operation { name, cost: Cost::Read, prepare: Some(|at, _| at.in_blocks.create(at)), run }
}

/// `stat` of the path.
pub static STAT: Operation =
    reading("stat", |at, _| at.volume.metadata_at(at.path.as_bytes(), true).map(drop));

/// `stat` of a path that ends in a symbolic link.
pub static STAT_LINK: Operation =
    reading("stat of a link", |at, _| at.volume.metadata_at(at.link.as_bytes(), true).map(drop));

/// `stat` of a path that leads through the parent of a directory.
pub static STAT_PARENT: Operation = reading("stat through ..", |at, _| {
    let (_, dir) = at.dir_path.rsplit_once('/').unwrap_or(("", &at.dir_path));
    let path = format!("{}/../{dir}/{}", at.dir_path, at.name);
    at.volume.metadata_at(path.as_bytes(), true).map(drop)
});

/// `stat` of a path that does not exist.
pub static STAT_MISSING: Operation = reading("stat of a missing name", |at, _| {
    // The result is `ENOENT`.
    let _ = at.volume.metadata_at(at.missing.as_bytes(), true);
    Ok(())
});

/// `stat` of the path of the directory.
pub static STAT_DIRECTORY: Operation =
    reading("stat of the directory", |at, _| at.volume.metadata_at(at.dir_path.as_bytes(), true).map(drop));

/// `stat` of the file by its inode number, as the mount does.
pub static STAT_INO: Operation =
    reading("stat by number", |at, _| at.volume.metadata(at.file.id()).map(drop));

/// `fstat` of the open file.
pub static FSTAT: Operation = reading("fstat", |at, _| at.file.metadata().map(drop));

/// Lookup of the name in the directory, by inode number, as the mount does.
pub static LOOKUP: Operation =
    reading("lookup", |at, _| at.volume.lookup_metadata(at.dir.id(), at.name.as_bytes()).map(drop));

/// Lookup of a name that does not exist.
pub static LOOKUP_MISSING: Operation = reading("lookup of a missing name", |at, _| {
    // The result is `ENOENT`.
    let _ = at.volume.lookup_metadata(at.dir.id(), b"no such name");
    Ok(())
});

/// `readlink` of the symbolic link.
pub static READLINK: Operation = reading("readlink", |at, _| {
    let link = at.volume.resolve(at.link.as_bytes(), false)?;
    at.volume.read_link(link).map(drop)
});

/// The first entries of the directory.
pub static READDIR: Operation = reading("readdir", |at, _| {
    let mut entries = 0;
    at.volume.read_dir(at.dir.id(), Cookie::default(), &mut |_| {
        entries += 1;
        entries < 8
    })
});

/// `readlink` of a symbolic link whose target is in a block.
pub static READLINK_BLOCK: Operation = reading_blocks("readlink of a long target", |at, _| {
    let link = at.volume.resolve(at.in_blocks.link.as_bytes(), false)?;
    at.volume.read_link(link).map(drop)
});

/// All entries of a directory in several blocks.
pub static READDIR_BLOCKS: Operation = reading_blocks("readdir of 200 names", |at, _| {
    let dir = at.volume.resolve(at.in_blocks.dir.as_bytes(), false)?;
    at.volume.read_dir(dir, Cookie::default(), &mut |_| true)
});

/// `getxattr` of a value in a leaf.
pub static GET_LEAF_ATTRIBUTE: Operation = reading_blocks("getxattr from a leaf", |at, _| {
    let file = at.volume.resolve(at.in_blocks.file.as_bytes(), false)?;
    at.volume.get_attribute(file, ATTRIBUTE).map(drop)
});

/// `getxattr` of a value in blocks of its own.
pub static GET_REMOTE_ATTRIBUTE: Operation = reading_blocks("getxattr of a long value", |at, _| {
    let file = at.volume.resolve(at.in_blocks.file.as_bytes(), false)?;
    at.volume.get_attribute(file, LONG_ATTRIBUTE).map(drop)
});

/// `listxattr` of names in a leaf.
pub static LIST_LEAF_ATTRIBUTES: Operation = reading_blocks("listxattr from a leaf", |at, _| {
    let file = at.volume.resolve(at.in_blocks.file.as_bytes(), false)?;
    at.volume.list_attributes(file).map(drop)
});

/// `open` by name; the file stays open.
pub static OPEN: Operation = reading("open", |at, round| {
    let file = at.dir.open_file(&at.name)?;
    hold(at, round, file);
    Ok(())
});

/// `close` of a file that was opened before.
pub static CLOSE: Operation = Operation {
    cost: Cost::Read,
    ..prepared(
        "close",
        |at, round| (OPEN.run)(at, round),
        |at, round| {
            if let Some(file) = at.held.borrow_mut().get_mut(round) {
                drop(file.take());
            }
            Ok(())
        },
    )
};

/// `open` and `close`.
pub static OPEN_CLOSE: Operation = reading("open and close", |at, _| at.dir.open_file(&at.name).map(drop));

/// `pread` of the first page.
pub static READ: Operation = reading("read of a page", |at, _| read(at, 0));

/// `pread` of a page that is another one for each side.
pub static READ_OWN: Operation = reading("read of another page", |at, _| read(at, at.side % 4));

/// `getxattr`.
pub static GET_ATTRIBUTE: Operation =
    reading("getxattr", |at, _| at.volume.get_attribute(at.file.id(), ATTRIBUTE).map(drop));

/// `listxattr`.
pub static LIST_ATTRIBUTES: Operation =
    reading("listxattr", |at, _| at.volume.list_attributes(at.file.id()).map(drop));

/// `lseek` with `SEEK_HOLE`.
pub static SEEK: Operation = reading("lseek", |at, _| at.file.seek_hole(0).map(drop));

/// `statfs`.
pub static STATFS: Operation = Operation {
    cost: Cost::Change,
    ..reading("statfs", |at, _| {
        drop(at.volume.statistics());
        Ok(())
    })
};

/// `pwrite` to the first page, which is in memory.
pub static WRITE: Operation = changing("write of a page", |at, _| write(at, 0));

/// `pwrite` to a page that is another one for each side.
pub static WRITE_OWN: Operation = changing("write of another page", |at, _| write(at, at.side % 4));

/// `pwrite` to the first page, which is clean.
pub static DIRTY: Operation =
    prepared("write of a clean page", |at, _| at.file.sync_all(), |at, _| write(at, 0));

/// A write of a page at the end.
pub static APPEND: Operation = changing("append", |at, _| at.file.append(&at.page.borrow()).map(drop));

/// `ftruncate`, to a page less or more.
pub static TRUNCATE: Operation =
    changing("truncate", |at, round| at.file.set_len(((3 + round % 2) * PAGE) as u64));

/// `fallocate` of a block behind the end.
pub static ALLOCATE: Operation =
    changing("fallocate", |at, round| at.file.allocate(((8 + round) * PAGE) as u64, PAGE as u64, true));

/// `fallocate` with `FALLOC_FL_PUNCH_HOLE` of one block.
pub static PUNCH: Operation = prepared(
    "punch hole",
    |at, round| at.file.allocate(((8 + 2 * round) * PAGE) as u64, PAGE as u64, true),
    |at, round| at.file.punch_hole(((8 + 2 * round) * PAGE) as u64, PAGE as u64),
);

/// `pwrite` and `fsync`.
pub static FSYNC: Operation = changing("write and fsync", |at, _| {
    write(at, 0)?;
    at.file.sync_all()
});

/// `fsync` of a file that was not changed.
pub static FSYNC_CLEAN: Operation = reading("fsync of a clean file", |at, _| at.file.sync_all());

/// `fchmod`.
pub static CHMOD: Operation = changing("chmod", |at, round| {
    let permissions = Some(0o600 + (round % 2) as u16);
    at.file.set_metadata(&SetMetadata { permissions, ..SetMetadata::default() })
});

/// `setxattr` of an existing attribute to a value of the same size.
pub static SET_ATTRIBUTE: Operation = changing("setxattr", |at, round| {
    let value = if round % 2 == 0 { b"even rounds" } else { b"odd  rounds" };
    at.volume.set_attribute(at.file.id(), ATTRIBUTE, value, SetAttribute::Any)
});

/// `setxattr` of an attribute that is another one for each side.
pub static SET_OWN_ATTRIBUTE: Operation = changing("setxattr of another name", |at, round| {
    let name: &[u8] = if at.side % 2 == 0 { b"user.first" } else { b"user.second" };
    at.volume.set_attribute(at.file.id(), name, &[round as u8; 8], SetAttribute::Any)
});

/// Creation of an empty file.
pub static CREATE: Operation =
    changing("create", |at, round| create(at, &at.names, round, &NewFile::regular()));

/// `mkdir`.
pub static MKDIR: Operation =
    changing("mkdir", |at, round| create(at, &at.names, round, &NewFile::directory()));

/// `symlink`.
pub static SYMLINK: Operation =
    changing("symlink", |at, round| create(at, &at.names, round, &NewFile::symlink(b"target")));

/// `open` with `O_TMPFILE`, and `close`.
pub static TMPFILE: Operation = changing("unnamed file", |at, _| {
    at.dir.create_unnamed(OpenOptions::new().read(true).write(true)).map(drop)
});

/// `unlink` of a file that was created before.
pub static UNLINK: Operation = prepared(
    "unlink",
    |at, round| create(at, &at.names, round, &NewFile::regular()),
    |at, round| at.volume.unlink(at.dir.id(), name(&at.names, round)),
);

/// `rmdir` of an empty directory.
pub static RMDIR: Operation = prepared(
    "rmdir",
    |at, round| create(at, &at.names, round, &NewFile::directory()),
    |at, round| at.volume.rmdir(at.dir.id(), name(&at.names, round)),
);

/// `rename` within the directory to a new name.
pub static RENAME: Operation = prepared(
    "rename",
    |at, round| create(at, &at.names, round, &NewFile::regular()),
    |at, round| {
        let (from, to) = (name(&at.names, round), name(&at.other_names, round));
        at.volume.rename(at.dir.id(), from, at.dir.id(), to, volume::Rename::NoReplace)
    },
);

/// `link` of the file to a new name in the directory.
pub static LINK: Operation =
    changing("link", |at, round| at.volume.link(at.file.id(), at.dir.id(), name(&at.names, round)));

fn create(at: &Actor<'_>, names: &[String], round: usize, new: &NewFile<'_>) -> Result<()> {
    at.volume.create(at.dir.id(), name(names, round), new).map(drop)
}

fn name(names: &[String], round: usize) -> &[u8] {
    names.get(round).map_or(b"", String::as_bytes)
}

fn hold<'v>(at: &Actor<'v>, round: usize, file: volume::File<'v>) {
    if let Some(place) = at.held.borrow_mut().get_mut(round) {
        *place = Some(file);
    }
}

fn read(at: &Actor<'_>, page: usize) -> Result<()> {
    at.file.read_exact_at(&mut at.page.borrow_mut(), (page * PAGE) as u64)
}

fn write(at: &Actor<'_>, page: usize) -> Result<()> {
    at.file.write_all_at(&at.page.borrow(), (page * PAGE) as u64)
}
