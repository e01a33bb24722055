//! A tree as somebody sees it: by inode numbers, to be compared with what the model says.
//!
//! It is read from a volume by `read`, from a manifest (which the kernel side prints, too), or through
//! the subject's own calls.

use std::collections::BTreeMap;

use base::Ino;
use base::time::Time;
use format::inode::{Dinode, FileType};
use format::timestamp::Timestamp;
use read::manifest::{self, PathKey, Record, TargetKey};

use crate::facts::{Facts, Times, entry_print, file_print};
use crate::operation::{Kind, Name};
use crate::subject::Subject;
use crate::tree::Tree;

/// One file as it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// What `stat` tells.
    pub facts: Facts,
    /// A directory's entries.
    pub entries: BTreeMap<Name, u64>,
}

/// All files that can be reached from some directory, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The files.
    pub files: BTreeMap<u64, SeenFile>,
}

/// How many differences are put into words.
const TOLD_MAX: usize = 24;

impl Seen {
    /// What the model expects to be seen.
    pub fn of_tree(tree: &Tree) -> Self {
        let number = |id| tree.node(id).map_or(0, |node| node.number);
        let reachable = tree.nodes().filter(|(_, node)| node.facts.links > 0);
        let files = reachable.map(|(_, node)| {
            let entries = node.entries.iter().map(|(name, id)| (name.clone(), number(*id))).collect();
            (node.number, SeenFile { facts: node.facts.clone(), entries })
        });
        Self { files: files.collect() }
    }

    /// Reads what lies below a directory of a volume, with or without times.
    ///
    /// # Errors
    /// The first thing that cannot be read, or that no tree of this kind holds, in words.
    pub fn of_volume(volume: &read::Volume, top: u64, times: bool) -> Result<Self, String> {
        let mut seen = Self::default();
        let mut todo = vec![top];
        let mut inodes = volume.inodes();
        while let Some(number) = todo.pop() {
            if seen.files.contains_key(&number) {
                continue;
            }
            let inode = inodes.get(Ino(number)).map_err(|error| format!("inode {number}: {error}"))?;
            let file = seen_file(volume, &inode, times).map_err(|what| format!("inode {number}: {what}"))?;
            todo.extend(file.entries.values());
            seen.files.insert(number, file);
        }
        Ok(seen)
    }

    /// Asks a subject for all that lies below a directory, call by call.
    ///
    /// # Errors
    /// The first call that failed, in words.
    pub fn of_subject(subject: &impl Subject, top: u64, times: bool) -> Result<Self, String> {
        let mut seen = Self::default();
        let mut todo = vec![top];
        while let Some(number) = todo.pop() {
            if seen.files.contains_key(&number) {
                continue;
            }
            let words = |failure| format!("inode {number}: {failure}");
            let mut facts = subject.stat(number).map_err(words)?;
            facts.times = facts.times.filter(|_| times);
            let is_directory = facts.kind.is_directory();
            let entries = if is_directory { subject.list(number).map_err(words)? } else { BTreeMap::new() };
            todo.extend(entries.values());
            seen.files.insert(number, SeenFile { facts, entries });
        }
        Ok(seen)
    }

    /// Puts a manifest's lines together: from a kernel's mount, or from `xebec manifest`.
    ///
    /// # Errors
    /// What no tree of this kind holds, in words.
    pub fn of_records<'r>(
        records: impl IntoIterator<Item = &'r Record>,
        times: bool,
    ) -> Result<Self, String> {
        let mut seen = Self::default();
        let mut numbers: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for record in records {
            let path = path_bytes(&record.path)?;
            numbers.insert(path.clone(), record.ino);
            let facts = facts_of_record(record, times)?;
            let known = seen.files.entry(record.ino);
            let file = known.or_insert_with(|| SeenFile { facts: facts.clone(), entries: BTreeMap::new() });
            if file.facts != facts {
                return Err(format!("two names of inode {} tell different things", record.ino));
            }
            if path.is_empty() {
                continue;
            }
            let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&path[..0], &path[..]),
            };
            let parent = numbers.get(parent).ok_or("a manifest lists a file before its directory")?;
            let directory = seen.files.get_mut(parent).ok_or("a parent that is not listed")?;
            directory.entries.insert(name.to_vec(), record.ino);
        }
        Ok(seen)
    }

    /// The part below one directory, the directory included.
    pub fn below(&self, top: u64) -> Self {
        let mut part = Self::default();
        let mut todo = vec![top];
        while let Some(number) = todo.pop() {
            if let Some(file) = self.files.get(&number).filter(|_| !part.files.contains_key(&number)) {
                todo.extend(file.entries.values());
                part.files.insert(number, file.clone());
            }
        }
        part
    }

    /// The number that [`Tree::fingerprint`] gives for the same tree.
    pub fn fingerprint(&self) -> u64 {
        let print = |(number, file): (&u64, &SeenFile)| {
            let entries = file.entries.iter();
            let sum = entries.fold(0u64, |sum, (name, to)| sum.wrapping_add(entry_print(name, *to)));
            file_print(*number, &file.facts, sum)
        };
        self.files.iter().map(print).fold(0, u64::wrapping_add)
    }

    /// In words, what is different from what was expected; nothing where all is equal.
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let mut told = Vec::new();
        for (number, file) in &expected.files {
            match self.files.get(number) {
                None => told.push(format!("inode {number} is missing: {:?}", file.facts)),
                Some(found) => compare(*number, file, found, &mut told),
            }
        }
        for (number, file) in &self.files {
            if !expected.files.contains_key(number) {
                told.push(format!("inode {number} should not be there: {:?}", file.facts));
            }
        }
        if told.len() > TOLD_MAX {
            let rest = told.len() - TOLD_MAX;
            told.truncate(TOLD_MAX);
            told.push(format!("and {rest} more"));
        }
        told
    }
}

fn compare(number: u64, expected: &SeenFile, found: &SeenFile, told: &mut Vec<String>) {
    if expected.facts != found.facts {
        told.push(format!("inode {number}: {:?}, expected {:?}", found.facts, expected.facts));
    }
    for (name, to) in &expected.entries {
        match found.entries.get(name) {
            Some(found) if found == to => (),
            Some(found) => {
                told.push(format!("inode {number}: {} is {found}, expected {to}", name.escape_ascii()));
            }
            None => told.push(format!("inode {number}: {} is missing ({to})", name.escape_ascii())),
        }
    }
    for (name, to) in &found.entries {
        if !expected.entries.contains_key(name) {
            told.push(format!("inode {number}: {} should not be there ({to})", name.escape_ascii()));
        }
    }
}

/// Reads one file, and that its size and its entries' types are as they must be.
fn seen_file(volume: &read::Volume, inode: &Dinode<'_>, times: bool) -> Result<SeenFile, String> {
    let words = |error: read::Error| error.to_string();
    let metadata = read::Metadata::of(inode, volume.geometry()).map_err(words)?;
    let (major, minor) = metadata.device;
    let kind = match metadata.file_type {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink(read::read_link(volume, inode).map_err(words)?),
        FileType::CharDevice => Kind::CharDevice(major, minor),
        FileType::BlockDevice => Kind::BlockDevice(major, minor),
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
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
        for entry in read::entries(volume, inode).map_err(words)? {
            let name = entry.name.escape_ascii().to_string();
            if entries.insert(entry.name.into_vec(), entry.ino.get()).is_some() {
                return Err(format!("{name} is there twice"));
            }
        }
    }
    let facts = Facts {
        kind,
        mode: metadata.permissions,
        uid: metadata.uid,
        gid: metadata.gid,
        links: metadata.links,
        times,
    };
    Ok(SeenFile { facts, entries })
}

fn expect_size(kind: &Kind, found: u64) -> Result<(), String> {
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

fn facts_of_record(record: &Record, times: bool) -> Result<Facts, String> {
    let wrong = |what: &str| format!("inode {}: {what} of its record", record.ino);
    let device = || {
        let (major, minor) = record.rdev.as_deref()?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let device = || device().ok_or_else(|| wrong("rdev"));
    let kind = match record.kind {
        manifest::Kind::File => Kind::File,
        manifest::Kind::Dir => Kind::Directory,
        manifest::Kind::Symlink => Kind::Symlink(match &record.target {
            Some(TargetKey::Text(text)) => text.clone().into_bytes(),
            Some(TargetKey::Hex(hex)) => unhex(hex)?,
            None => return Err(wrong("target")),
        }),
        manifest::Kind::Block => device().map(|(major, minor)| Kind::BlockDevice(major, minor))?,
        manifest::Kind::Char => device().map(|(major, minor)| Kind::CharDevice(major, minor))?,
        manifest::Kind::Fifo => Kind::Fifo,
        manifest::Kind::Socket => Kind::Socket,
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
    Ok(Facts { kind, mode, uid: record.uid, gid: record.gid, links, times })
}
