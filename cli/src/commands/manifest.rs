//! `xebec manifest`: writes one line of JSON per file, to compare volumes (docs/manifest.md).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use base::Ino;
use clap::Args;
use format::inode::FileType;
use format::timestamp::Timestamp;
use read::manifest::{self, EntryType, HASH_SIZE_MAX, PathKey, Record, TargetKey};
use read::{
    AclNames, Inode, InodeReader, Listing, Metadata, Visited, Volume, for_each_xattr, join, read_at,
    read_link,
};
use sha2::{Digest, Sha256};

use crate::args::Global;
use crate::failure::Failure;
use crate::open;
use crate::walk::{Shown, TextSink};
use base::pipeline::{self, PipelineItem, PipelineWork};

/// Arguments of `manifest`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Writes one JSON object per file, sorted by the bytes of the paths: see docs/manifest.md. Equal \
    lines mean equal contents and metadata.\n\n\
    Examples:\n  xebec manifest disk.xfs > disk.manifest\n  diff <(xebec manifest a.xfs) <(xebec manifest b.xfs)\n\n\
    Exit codes: 0 success; 1 a file could not be read and was skipped; 2 usage error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
}

/// Size above which a file is a task of its own.
const SMALL: u64 = 1 << 20;
/// Size of a read, in bytes.
const PIECE: usize = 256 << 10;

/// Runs `manifest`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&arguments.image, global)?;
    let work = Manifest { volume: &image.volume, visited: Visited::default() };
    let mut sink = TextSink::new(&image.messages, 0);
    let root = image.volume.root();
    let tasks = vec![
        Task::File { path: Vec::new(), ino: root },
        Task::Directory { path: Vec::new(), ino: root, depth: 0 },
    ];
    pipeline::run(&work, tasks, &mut sink, global.thread_count())?;
    sink.flush()?;
    Ok(image.messages.finish())
}

struct Manifest<'m> {
    volume: &'m Volume,
    visited: Visited,
}

enum Task {
    /// Line of a file.
    File { path: Vec<u8>, ino: Ino },
    /// Lines of the entries of a directory.
    Directory { path: Vec<u8>, ino: Ino, depth: usize },
}

struct Worker<'m> {
    reader: InodeReader<'m>,
    piece: Vec<u8>,
}

type Pieces = Vec<PipelineItem<Task, Shown>>;

impl<'m> PipelineWork for Manifest<'m> {
    type Task = Task;
    type Result = Shown;
    type Worker = Worker<'m>;

    fn worker(&self) -> Worker<'m> {
        Worker { reader: self.volume.inodes(), piece: vec![0; PIECE] }
    }

    fn perform(&self, worker: &mut Worker<'m>, task: Task, pieces: &mut Pieces) {
        match task {
            Task::File { path, ino } => {
                let mut out = Vec::new();
                match worker.reader.get(ino).map(Inode::from) {
                    Ok(inode) => self.line(worker, &path, &inode, &mut out, pieces),
                    Err(error) => pieces.push(PipelineItem::Result(Shown::failure(&path, error))),
                }
                pieces.push(PipelineItem::Result(Shown::Text(out)));
            }
            Task::Directory { path, ino, depth } => self.directory(worker, &path, ino, depth, pieces),
        }
    }

    fn weight(&self, shown: &Shown) -> usize {
        shown.weight()
    }
}

impl<'m> Manifest<'m> {
    /// Lines are sorted by whole paths: the contents of a directory sort as its name with a slash, which is not always
    /// directly after its own line.
    fn directory(&self, worker: &mut Worker<'m>, path: &[u8], ino: Ino, depth: usize, pieces: &mut Pieces) {
        let failure = |path: &[u8], error: Failure| PipelineItem::Result(Shown::failure(path, error));
        if let Err(reason) = self.visited.enter(ino, depth) {
            return pieces.push(failure(path, reason.into()));
        }
        let listing = match worker.reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| pieces.push(failure(path, error.into()))),
            Err(error) => return pieces.push(failure(path, error.into())),
        };
        let mut entries = Vec::with_capacity(listing.items().len());
        for item in listing.items() {
            let name = listing.name(item);
            entries.push((name.to_vec(), item.ino, false));
            if item.file_type == Some(FileType::Directory)
                || self.is_directory(worker, item.file_type, item.ino)
            {
                entries.push(([name, b"/"].concat(), item.ino, true));
            }
        }
        entries.sort();
        let mut out = Vec::new();
        for (name, ino, is_contents) in entries {
            let mut path = join(path, &name);
            if is_contents {
                path.pop();
                pieces.push(PipelineItem::Result(Shown::Text(std::mem::take(&mut out))));
                pieces.push(PipelineItem::Task(Task::Directory { path, ino, depth: depth + 1 }));
                continue;
            }
            match worker.reader.get(ino).map(Inode::from) {
                Ok(inode) if inode.dinode().core.size.get() > SMALL => {
                    pieces.push(PipelineItem::Result(Shown::Text(std::mem::take(&mut out))));
                    pieces.push(PipelineItem::Task(Task::File { path, ino }));
                }
                Ok(inode) => self.line(worker, &path, &inode, &mut out, pieces),
                Err(error) => pieces.push(failure(&path, error.into())),
            }
        }
        pieces.push(PipelineItem::Result(Shown::Text(out)));
    }

    fn is_directory(&self, worker: &mut Worker<'m>, known: Option<FileType>, ino: Ino) -> bool {
        known.is_none()
            && worker.reader.get(ino).is_ok_and(|inode| inode.file_type() == Some(FileType::Directory))
    }

    fn line(
        &self,
        worker: &mut Worker<'m>,
        path: &[u8],
        inode: &Inode,
        out: &mut Vec<u8>,
        pieces: &mut Pieces,
    ) {
        let written = self.record(worker, path, inode, pieces).map(|record| record.write_line(&mut *out));
        if let Err(error) = written {
            pieces.push(PipelineItem::Result(Shown::failure(path, error)));
        }
    }

    fn record(
        &self,
        worker: &mut Worker<'m>,
        path: &[u8],
        inode: &Inode,
        pieces: &mut Pieces,
    ) -> read::Result<Record> {
        let dinode = inode.dinode();
        let metadata = Metadata::of(&dinode, self.volume.geometry())?;
        let kind = metadata.file_type;
        let is_device = matches!(kind, FileType::BlockDevice | FileType::CharDevice);
        let has_flags = matches!(kind, FileType::Regular | FileType::Directory);
        let time = |time: Timestamp| manifest::time(time.seconds, time.nanoseconds);
        let target = match kind {
            FileType::Symlink => Some(TargetKey::new(&read_link(self.volume, &dinode)?)),
            _ => None,
        };
        let mut xattrs = BTreeMap::new();
        for_each_xattr(self.volume, &dinode, AclNames::AsRoot, |xattr| {
            match xattr {
                Ok(xattr) => {
                    xattrs.insert(manifest::xattr_key(xattr.name), manifest::hex(xattr.value));
                }
                Err(error) => pieces.push(PipelineItem::Result(Shown::failure(path, error))),
            }
            ControlFlow::Continue(())
        })?;
        let hashed = kind == FileType::Regular && metadata.size <= HASH_SIZE_MAX;
        let sha256 = if hashed { Some(self.hash(worker, inode, metadata.size)?) } else { None };
        Ok(Record {
            path: PathKey::new(path),
            kind: kind_of(kind),
            mode: manifest::mode(metadata.permissions.into()),
            uid: metadata.uid,
            gid: metadata.gid,
            nlink: metadata.links.into(),
            size: metadata.size,
            ino: metadata.ino.get(),
            atime: time(metadata.times.access),
            mtime: time(metadata.times.modify),
            ctime: time(metadata.times.change),
            btime: time(metadata.times.create),
            rdev: is_device.then(|| manifest::rdev(metadata.device.0, metadata.device.1)),
            target,
            xattrs,
            sha256,
            projid: has_flags.then_some(metadata.project),
            xflags: has_flags.then_some(metadata.xflags),
        })
    }

    fn hash(&self, worker: &mut Worker<'m>, inode: &Inode, size: u64) -> read::Result<String> {
        let mut hash = Sha256::new();
        let mut at = 0;
        while at < size {
            let length = read_at(self.volume, &inode.dinode(), at, &mut worker.piece)?;
            hash.update(worker.piece.get(..length).unwrap_or_default());
            if length == 0 {
                break;
            }
            at += length as u64;
        }
        Ok(manifest::hex(&hash.finalize()))
    }
}

fn kind_of(kind: FileType) -> EntryType {
    match kind {
        FileType::Regular => EntryType::File,
        FileType::Directory => EntryType::Dir,
        FileType::Symlink => EntryType::Symlink,
        FileType::BlockDevice => EntryType::Block,
        FileType::CharDevice => EntryType::Char,
        FileType::Fifo => EntryType::Fifo,
        FileType::Socket => EntryType::Socket,
    }
}
