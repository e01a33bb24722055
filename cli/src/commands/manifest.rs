//! `xebec manifest`: writes one line of JSON per file, to compare volumes (docs/manifest.md).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

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
use crate::open;
use crate::walk::{TextSink, WalkItems as _, WalkOutput};
use base::pipeline::{self, PipelineItem, PipelineWork};
use xebec::Ino;

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

/// Larger files are separate tasks.
const SMALL_MAX: u64 = 1 << 20;
/// Size of a read, in bytes.
const CHUNK: usize = 256 << 10;

/// Runs `manifest`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let image = open::open(&arguments.image, global)?;
    let work = Manifest { volume: &image.volume, visited: Visited::default() };
    let mut sink = TextSink::new(&image.messages, 0);
    let root = image.volume.root();
    let tasks = vec![
        ManifestTask::File { path: Vec::new(), ino: root },
        ManifestTask::Directory { path: Vec::new(), ino: root, depth: 0 },
    ];
    pipeline::run(&work, tasks, &mut sink, global.thread_count())?;
    sink.flush()?;
    Ok(image.messages.finish())
}

struct Manifest<'m> {
    volume: &'m Volume,
    visited: Visited,
}

enum ManifestTask {
    /// Line of a file.
    File { path: Vec<u8>, ino: Ino },
    /// Lines of the entries of a directory.
    Directory { path: Vec<u8>, ino: Ino, depth: usize },
}

struct Worker<'m> {
    reader: InodeReader<'m>,
    buffer: Vec<u8>,
}

type Items = Vec<PipelineItem<ManifestTask, WalkOutput>>;

impl<'m> PipelineWork for Manifest<'m> {
    type Task = ManifestTask;
    type Result = WalkOutput;
    type Worker = Worker<'m>;

    fn worker(&self) -> Worker<'m> {
        Worker { reader: self.volume.inodes(), buffer: vec![0; CHUNK] }
    }

    fn perform(&self, worker: &mut Worker<'m>, task: ManifestTask, items: &mut Items) {
        match task {
            ManifestTask::File { path, ino } => {
                let mut out = Vec::new();
                match worker.reader.get(ino).map(Inode::from) {
                    Ok(inode) => self.line(worker, &path, &inode, &mut out, items),
                    Err(error) => items.fail(&path, error),
                }
                items.text(out);
            }
            ManifestTask::Directory { path, ino, depth } => self.directory(worker, &path, ino, depth, items),
        }
    }

    fn weight(&self, output: &WalkOutput) -> usize {
        output.weight()
    }
}

impl<'m> Manifest<'m> {
    /// Lines are sorted by whole paths: the contents of a directory sort as its name with a slash, which is not always
    /// directly after its own line.
    fn directory(&self, worker: &mut Worker<'m>, path: &[u8], ino: Ino, depth: usize, items: &mut Items) {
        if let Err(reason) = self.visited.enter(ino, depth) {
            return items.fail(path, reason);
        }
        let listing = match worker.reader.get(ino) {
            Ok(inode) => Listing::read(self.volume, &inode, |error| items.fail(path, error)),
            Err(error) => return items.fail(path, error),
        };
        let mut entries = Vec::with_capacity(listing.items().len());
        for entry in listing.items() {
            let name = listing.name(entry);
            entries.push((name.to_vec(), entry.ino, false));
            let file_type = entry
                .file_type
                .or_else(|| worker.reader.get(entry.ino).ok().and_then(|inode| inode.file_type()));
            if file_type == Some(FileType::Directory) {
                entries.push(([name, b"/"].concat(), entry.ino, true));
            }
        }
        entries.sort();
        let mut out = Vec::new();
        for (name, ino, is_contents) in entries {
            let mut path = join(path, &name);
            if is_contents {
                path.pop();
                items.text(std::mem::take(&mut out));
                items.task(ManifestTask::Directory { path, ino, depth: depth + 1 });
                continue;
            }
            match worker.reader.get(ino).map(Inode::from) {
                Ok(inode) if inode.dinode().core.size.get() > SMALL_MAX => {
                    items.text(std::mem::take(&mut out));
                    items.task(ManifestTask::File { path, ino });
                }
                Ok(inode) => self.line(worker, &path, &inode, &mut out, items),
                Err(error) => items.fail(&path, error),
            }
        }
        items.text(out);
    }

    fn line(
        &self,
        worker: &mut Worker<'m>,
        path: &[u8],
        inode: &Inode,
        out: &mut Vec<u8>,
        items: &mut Items,
    ) {
        let written = self.record(worker, path, inode, items).map(|record| record.write_line(&mut *out));
        if let Err(error) = written {
            items.fail(path, error);
        }
    }

    fn record(
        &self,
        worker: &mut Worker<'m>,
        path: &[u8],
        inode: &Inode,
        items: &mut Items,
    ) -> read::Result<Record> {
        let dinode = inode.dinode();
        let metadata = Metadata::of(&dinode, self.volume.geometry())?;
        let file_type = metadata.file_type;
        let is_device = matches!(file_type, FileType::BlockDevice | FileType::CharDevice);
        let has_flags = matches!(file_type, FileType::Regular | FileType::Directory);
        let time = |time: Timestamp| manifest::time(time.seconds, time.nanoseconds);
        let target = match file_type {
            FileType::Symlink => Some(TargetKey::new(&read_link(self.volume, &dinode)?)),
            _ => None,
        };
        let mut xattrs = BTreeMap::new();
        for_each_xattr(self.volume, &dinode, AclNames::AsRoot, |xattr| {
            match xattr {
                Ok(xattr) => {
                    xattrs.insert(manifest::xattr_key(xattr.name), manifest::hex(xattr.value));
                }
                Err(error) => items.fail(path, error),
            }
            ControlFlow::Continue(())
        })?;
        let hashed = file_type == FileType::Regular && metadata.size <= HASH_SIZE_MAX;
        let sha256 = if hashed { Some(self.hash(worker, inode, metadata.size)?) } else { None };
        Ok(Record {
            path: PathKey::new(path),
            kind: record_kind(file_type),
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
        let mut offset = 0;
        while offset < size {
            let length = read_at(self.volume, &inode.dinode(), offset, &mut worker.buffer)?;
            hash.update(worker.buffer.get(..length).unwrap_or_default());
            if length == 0 {
                break;
            }
            offset += length as u64;
        }
        Ok(manifest::hex(&hash.finalize()))
    }
}

fn record_kind(file_type: FileType) -> EntryType {
    match file_type {
        FileType::Regular => EntryType::File,
        FileType::Directory => EntryType::Dir,
        FileType::Symlink => EntryType::Symlink,
        FileType::BlockDevice => EntryType::Block,
        FileType::CharDevice => EntryType::Char,
        FileType::Fifo => EntryType::Fifo,
        FileType::Socket => EntryType::Socket,
    }
}
