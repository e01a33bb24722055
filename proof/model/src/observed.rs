//! A tree by inode numbers as read from a subject, to be compared with the model.
//!
//! It is read from a volume by `read`, from a manifest (which the helper program on Linux prints, too), or through the
//! subject's own calls.

use std::collections::BTreeMap;

use base::Ino;
use base::time::Time;
use format::inode::{Dinode, FileType};
use format::timestamp::Timestamp;
use read::manifest::{self, PathKey, Record, TargetKey};

use crate::operation::{FileKind, Name};
use crate::stat::{Stat, Times, entry_fingerprint, file_fingerprint};
use crate::subject::Subject;
use crate::tree::Tree;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFile {
    /// Result of `stat`.
    pub stat: Stat,
    /// Entries of a directory: names and inode numbers.
    pub entries: BTreeMap<Name, u64>,
}

/// All files below a directory, by inode number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedTree {
    /// The files.
    pub files: BTreeMap<u64, ObservedFile>,
}

/// Maximum number of differences that are reported.
const DIFFERENCES_MAX: usize = 24;

impl ObservedTree {
    /// The tree that the model expects.
    pub fn of_tree(tree: &Tree) -> Self {
        let number = |id| tree.node(id).map_or(0, |node| node.number);
        let reachable = tree.nodes().filter(|(_, node)| node.stat.links > 0);
        let files = reachable.map(|(_, node)| {
            let entries = node.entries.iter().map(|(name, id)| (name.clone(), number(*id))).collect();
            (node.number, ObservedFile { stat: node.stat.clone(), entries })
        });
        Self { files: files.collect() }
    }

    /// Reads the tree below a directory of a volume, with or without timestamps.
    ///
    /// # Errors
    /// The first inode that cannot be read or that the model does not support.
    pub fn of_volume(volume: &read::Volume, top: u64, times: bool) -> Result<Self, String> {
        let mut seen = Self::default();
        let mut todo = vec![top];
        let mut inodes = volume.inodes();
        while let Some(number) = todo.pop() {
            if seen.files.contains_key(&number) {
                continue;
            }
            let inode = inodes.get(Ino(number)).map_err(|error| format!("inode {number}: {error}"))?;
            let file = read_file(volume, &inode, times).map_err(|what| format!("inode {number}: {what}"))?;
            todo.extend(file.entries.values());
            seen.files.insert(number, file);
        }
        Ok(seen)
    }

    /// Reads the tree below a directory through the calls of a subject.
    ///
    /// # Errors
    /// The first call that failed.
    pub fn of_subject(subject: &impl Subject, top: u64, times: bool) -> Result<Self, String> {
        let mut seen = Self::default();
        let mut todo = vec![top];
        while let Some(number) = todo.pop() {
            if seen.files.contains_key(&number) {
                continue;
            }
            let message = |failure| format!("inode {number}: {failure}");
            let mut stat = subject.stat(number).map_err(message)?;
            stat.times = stat.times.filter(|_| times);
            let is_directory = stat.kind.is_directory();
            let entries = if is_directory { subject.list(number).map_err(message)? } else { BTreeMap::new() };
            todo.extend(entries.values());
            seen.files.insert(number, ObservedFile { stat, entries });
        }
        Ok(seen)
    }

    /// Builds the tree from the records of a manifest: of a kernel mount, or of `xebec manifest`.
    ///
    /// # Errors
    /// The first record that is inconsistent or that the model does not support.
    pub fn of_records<'r>(
        records: impl IntoIterator<Item = &'r Record>,
        times: bool,
    ) -> Result<Self, String> {
        let mut seen = Self::default();
        let mut numbers: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for record in records {
            let path = path_bytes(&record.path)?;
            numbers.insert(path.clone(), record.ino);
            let stat = stat_of_record(record, times)?;
            let known = seen.files.entry(record.ino);
            let file = known.or_insert_with(|| ObservedFile { stat: stat.clone(), entries: BTreeMap::new() });
            if file.stat != stat {
                return Err(format!("two names of inode {} have different metadata", record.ino));
            }
            if path.is_empty() {
                continue;
            }
            let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&path[..0], &path[..]),
            };
            let parent = numbers.get(parent).ok_or("a manifest lists a file before its directory")?;
            let directory = seen.files.get_mut(parent).ok_or("a parent is not listed")?;
            directory.entries.insert(name.to_vec(), record.ino);
        }
        Ok(seen)
    }

    /// Returns the subtree below one directory, including the directory.
    pub fn below(&self, top: u64) -> Self {
        let mut subtree = Self::default();
        let mut todo = vec![top];
        while let Some(number) = todo.pop() {
            if let Some(file) = self.files.get(&number).filter(|_| !subtree.files.contains_key(&number)) {
                todo.extend(file.entries.values());
                subtree.files.insert(number, file.clone());
            }
        }
        subtree
    }

    /// Returns the number that [`Tree::fingerprint`] returns for the same tree.
    pub fn fingerprint(&self) -> u64 {
        let fingerprint = |(number, file): (&u64, &ObservedFile)| {
            let entries = file.entries.iter();
            let sum = entries.fold(0u64, |sum, (name, to)| sum.wrapping_add(entry_fingerprint(name, *to)));
            file_fingerprint(*number, &file.stat, sum)
        };
        self.files.iter().map(fingerprint).fold(0, u64::wrapping_add)
    }

    /// Returns the differences from the expected tree, for a message; empty if both are equal.
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (number, file) in &expected.files {
            match self.files.get(number) {
                None => differences.push(format!("inode {number} is missing: {:?}", file.stat)),
                Some(found) => compare(*number, file, found, &mut differences),
            }
        }
        for (number, file) in &self.files {
            if !expected.files.contains_key(number) {
                differences.push(format!("inode {number} is unexpected: {:?}", file.stat));
            }
        }
        if differences.len() > DIFFERENCES_MAX {
            let rest = differences.len() - DIFFERENCES_MAX;
            differences.truncate(DIFFERENCES_MAX);
            differences.push(format!("and {rest} more"));
        }
        differences
    }
}

fn compare(number: u64, expected: &ObservedFile, found: &ObservedFile, differences: &mut Vec<String>) {
    if expected.stat != found.stat {
        differences.push(format!("inode {number}: {:?}, expected {:?}", found.stat, expected.stat));
    }
    for (name, to) in &expected.entries {
        match found.entries.get(name) {
            Some(found) if found == to => (),
            Some(found) => {
                differences
                    .push(format!("inode {number}: {} is {found}, expected {to}", name.escape_ascii()));
            }
            None => differences.push(format!("inode {number}: {} is missing ({to})", name.escape_ascii())),
        }
    }
    for (name, to) in &found.entries {
        if !expected.entries.contains_key(name) {
            differences.push(format!("inode {number}: {} is unexpected ({to})", name.escape_ascii()));
        }
    }
}

/// Reads one file and checks its size.
fn read_file(volume: &read::Volume, inode: &Dinode<'_>, times: bool) -> Result<ObservedFile, String> {
    let message = |error: read::Error| error.to_string();
    let metadata = read::Metadata::of(inode, volume.geometry()).map_err(message)?;
    let (major, minor) = metadata.device;
    let kind = match metadata.file_type {
        FileType::Regular => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink(read::read_link(volume, inode).map_err(message)?),
        FileType::CharDevice => FileKind::CharDevice(major, minor),
        FileType::BlockDevice => FileKind::BlockDevice(major, minor),
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
    };
    expect_size(&kind, metadata.size)?;
    let time = |at: Timestamp| Time { seconds: at.seconds, nanos: at.nanoseconds };
    let times = times.then(|| Times {
        accessed: time(metadata.times.access),
        modified: time(metadata.times.modify),
        changed: time(metadata.times.change),
        born: time(metadata.times.create),
    });
    let mut entries = BTreeMap::new();
    if kind.is_directory() {
        for entry in read::entries(volume, inode).map_err(message)? {
            let name = entry.name.escape_ascii().to_string();
            if entries.insert(entry.name.into_vec(), entry.ino.get()).is_some() {
                return Err(format!("{name} is listed twice"));
            }
        }
    }
    let stat = Stat {
        kind,
        mode: metadata.permissions,
        uid: metadata.uid,
        gid: metadata.gid,
        links: metadata.links,
        times,
    };
    Ok(ObservedFile { stat, entries })
}

fn expect_size(kind: &FileKind, found: u64) -> Result<(), String> {
    match kind.size() {
        Some(size) if size != found => Err(format!("size is {found}, expected {size}")),
        _ => Ok(()),
    }
}

fn path_bytes(path: &PathKey) -> Result<Vec<u8>, String> {
    match path {
        PathKey::Text(text) if text == "." => Ok(Vec::new()),
        PathKey::Text(text) => Ok(text.clone().into_bytes()),
        PathKey::Hex(hex) => unhex(hex),
    }
}

fn unhex(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = hex.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.ok_or_else(|| format!("`{hex}` is not hexadecimal"))?;
    Ok(digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte * 16 + digit) as u8).collect())
}

fn stat_of_record(record: &Record, times: bool) -> Result<Stat, String> {
    let wrong = |what: &str| format!("inode {}: {what} of its record", record.ino);
    let device = || {
        let (major, minor) = record.rdev.as_deref()?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let device = || device().ok_or_else(|| wrong("rdev"));
    let kind = match record.kind {
        manifest::EntryType::File => FileKind::File,
        manifest::EntryType::Dir => FileKind::Directory,
        manifest::EntryType::Symlink => FileKind::Symlink(match &record.target {
            Some(TargetKey::Text(text)) => text.clone().into_bytes(),
            Some(TargetKey::Hex(hex)) => unhex(hex)?,
            None => return Err(wrong("target")),
        }),
        manifest::EntryType::Block => device().map(|(major, minor)| FileKind::BlockDevice(major, minor))?,
        manifest::EntryType::Char => device().map(|(major, minor)| FileKind::CharDevice(major, minor))?,
        manifest::EntryType::Fifo => FileKind::Fifo,
        manifest::EntryType::Socket => FileKind::Socket,
    };
    expect_size(&kind, record.size).map_err(|what| wrong(&what))?;
    let time = |text: &str| {
        let (seconds, nanos) = text.split_once('.').ok_or_else(|| wrong(text))?;
        let seconds = seconds.parse().map_err(|_| wrong(text))?;
        Ok::<_, String>(Time { seconds, nanos: nanos.parse().map_err(|_| wrong(text))? })
    };
    let times = match times {
        false => None,
        true => Some(Times {
            accessed: time(&record.atime)?,
            modified: time(&record.mtime)?,
            changed: time(&record.ctime)?,
            born: time(&record.btime)?,
        }),
    };
    let mode = u16::from_str_radix(&record.mode, 8).map_err(|_| wrong("mode"))?;
    let links = u32::try_from(record.nlink).map_err(|_| wrong("nlink"))?;
    Ok(Stat { kind, mode, uid: record.uid, gid: record.gid, links, times })
}
