//! Overrides of the metadata of a source.
//!
//! A *list of overrides* has one line per file: its path, then `KEY=VALUE` pairs, separated by blanks. Quotes and
//! backslashes work as in a shell; `#` begins a comment.
//!
//! | key | value |
//! |---|---|
//! | `mode` | permission bits in octal |
//! | `uid`, `gid` | a number |
//! | `mtime` | seconds since 1970, optionally with a fraction |
//! | `xattr.NAME` | the value as text, or in hexadecimal after `0x` |
//! | `type` | `file`, `dir`, `link`, `char`, `block`, `fifo`, `socket`: the type of a file that the source does not have |
//! | `device` | `MAJOR,MINOR` of a device |
//! | `target` | target of a symlink |

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use base::time::Time;
use format::inode::FileType;
use volume::DeviceNumber;

use crate::Error;
use crate::item::{Data, Entry, EntryKind, EntryMetadata, normalized};
use crate::labels::{self, Labels};

/// Computes permissions from the current ones, and whether the file is a directory.
pub type ChangeMode = Arc<dyn Fn(u16, bool) -> u16 + Send + Sync>;

/// Overrides of metadata, and files to add.
#[derive(Clone, Default)]
pub struct Overrides {
    /// Owner of all files.
    pub uid: Option<u32>,
    /// Group of all files.
    pub gid: Option<u32>,
    /// Permissions of all files except symlinks.
    pub mode: Option<ChangeMode>,
    /// Maximum time, as for `SOURCE_DATE_EPOCH`: later and unknown times become this one. Access times become the
    /// modification times, as reading the source changes them.
    pub latest: Option<Time>,
    /// SELinux labels.
    pub labels: Option<Labels>,
    /// Lines of lists by path.
    lines: HashMap<Vec<u8>, ListedFile>,
}

/// An invalid line of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Line number, from 1.
    pub number: usize,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.problem)
    }
}

impl std::error::Error for BadLine {}

/// A line of a list.
#[derive(Default)]
struct ListedFile {
    line: Line,
    /// The source has the file.
    is_seen: AtomicBool,
}

/// The clone has not been seen.
impl Clone for ListedFile {
    fn clone(&self) -> Self {
        Self { line: self.line.clone(), is_seen: AtomicBool::new(false) }
    }
}

#[derive(Clone, Debug, Default)]
struct Line {
    file_type: Option<FileType>,
    device: Option<DeviceNumber>,
    target: Option<Vec<u8>>,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    modified: Option<Time>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Overrides {
    /// Adds the lines of a list.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn add_list(&mut self, list: &str) -> Result<(), BadLine> {
        for (index, line) in list.lines().enumerate() {
            let bad = |problem| BadLine { number: index + 1, problem };
            let words = shell_words::split(line).map_err(|error| bad(error.to_string()))?;
            let mut words = words.into_iter();
            let Some(path) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let path = normalized(path.as_bytes())
                .ok_or_else(|| bad(format!("{path:?} leaves the tree by \"..\"")))?;
            let line = Line::parse(words.take_while(|word| !word.starts_with('#'))).map_err(bad)?;
            self.lines.insert(path, ListedFile { line, is_seen: AtomicBool::new(false) });
        }
        Ok(())
    }

    /// Whether there are no overrides.
    pub fn is_empty(&self) -> bool {
        let Self { uid, gid, mode, latest, labels, lines } = self;
        let are_all = mode.is_some() || latest.is_some() || labels.is_some();
        uid.or(*gid).is_none() && !are_all && lines.is_empty()
    }

    /// Applies the overrides to an entry.
    pub fn apply(&self, entry: &mut Entry) {
        let metadata = &mut entry.metadata;
        let is_directory = entry.kind == EntryKind::Directory;
        if let Some(mode) = self.mode.as_ref().filter(|_| !matches!(entry.kind, EntryKind::Symlink(_))) {
            metadata.permissions = mode(metadata.permissions, is_directory) & 0o7777;
        }
        metadata.uid = self.uid.unwrap_or(metadata.uid);
        metadata.gid = self.gid.unwrap_or(metadata.gid);
        if let Some(label) = self.labels.as_ref().and_then(|labels| labels.of(&entry.path, &entry.kind)) {
            metadata.attributes.retain(|(name, _)| name != labels::ATTRIBUTE);
            metadata.attributes.push((labels::ATTRIBUTE.to_vec(), label.to_vec()));
        }
        if let Some(file) = self.lines.get(&entry.path) {
            file.is_seen.store(true, Relaxed);
            file.line.apply(metadata);
        }
        if let Some(latest) = self.latest {
            metadata.modified = Some(metadata.modified.map_or(latest, |time| time.min(latest)));
            metadata.accessed = metadata.modified;
        }
    }

    /// The label of a directory that the source does not contain.
    pub(crate) fn label_of_directory(&self, path: &[u8]) -> Option<&[u8]> {
        self.labels.as_ref()?.of(path, &EntryKind::Directory)
    }

    /// Files of the lists that the source did not contain, as entries to create, sorted by path.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the first line without a type.
    pub fn missing(&self) -> crate::Result<Vec<Entry>> {
        let mut unseen: Vec<_> = self.lines.iter().filter(|(_, file)| !file.is_seen.load(Relaxed)).collect();
        unseen.sort_unstable_by_key(|(path, _)| path.as_slice());
        let entry = |(path, file): (&Vec<u8>, &ListedFile)| {
            let problem =
                "the list of overrides names it, but the source does not have it: add type= to create it";
            let kind = file.line.kind().ok_or_else(|| Error::invalid(path, problem))?;
            let permissions = if kind == EntryKind::Directory { 0o755 } else { 0o644 };
            let metadata = EntryMetadata { permissions, ..EntryMetadata::default() };
            Ok(Entry { path: path.clone(), kind, metadata })
        };
        unseen.into_iter().map(entry).collect()
    }

    /// Paths of the files in lists that are created if the source does not contain them.
    pub(crate) fn created_paths(&self) -> impl Iterator<Item = &[u8]> {
        let unseen = self
            .lines
            .iter()
            .filter(|(_, file)| file.line.file_type.is_some() && !file.is_seen.load(Relaxed));
        unseen.map(|(path, _)| path.as_slice())
    }
}

impl Line {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut line = Self::default();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not KEY=VALUE"))?;
            line.set(key, value).ok_or_else(|| format!("{word:?}: unknown key or invalid value"))?;
        }
        match line.file_type {
            Some(FileType::CharDevice | FileType::BlockDevice) if line.device.is_none() => {
                Err("a device requires device=MAJOR,MINOR".into())
            }
            Some(FileType::Symlink) if line.target.is_none() => Err("a link requires target=PATH".into()),
            _ => Ok(line),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "mode" => self.mode = Some(u16::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777)?),
            "uid" => self.uid = Some(value.parse().ok()?),
            "gid" => self.gid = Some(value.parse().ok()?),
            "mtime" => self.modified = Some(time(value)?),
            "target" => self.target = Some(value.as_bytes().to_vec()),
            "device" => {
                let (major, minor) = value.split_once(',')?;
                self.device = Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? });
            }
            "type" => {
                self.file_type = Some(match value {
                    "file" => FileType::Regular,
                    "dir" => FileType::Directory,
                    "link" => FileType::Symlink,
                    "char" => FileType::CharDevice,
                    "block" => FileType::BlockDevice,
                    "fifo" => FileType::Fifo,
                    "socket" => FileType::Socket,
                    _ => return None,
                });
            }
            key => {
                let name = key.strip_prefix("xattr.").filter(|name| crate::item::is_kept(name.as_bytes()))?;
                self.attributes.push((name.as_bytes().to_vec(), bytes(value)?));
            }
        }
        Some(())
    }

    fn apply(&self, metadata: &mut EntryMetadata) {
        metadata.permissions = self.mode.unwrap_or(metadata.permissions);
        metadata.uid = self.uid.unwrap_or(metadata.uid);
        metadata.gid = self.gid.unwrap_or(metadata.gid);
        metadata.modified = self.modified.or(metadata.modified);
        for (name, value) in &self.attributes {
            metadata.attributes.retain(|(there, _)| there != name);
            metadata.attributes.push((name.clone(), value.clone()));
        }
    }

    fn kind(&self) -> Option<EntryKind> {
        let device = self.device.unwrap_or(DeviceNumber { major: 0, minor: 0 });
        Some(match self.file_type? {
            FileType::Regular => EntryKind::File { size: 0, data: Data::default() },
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink(self.target.clone()?),
            FileType::CharDevice => EntryKind::CharDevice(device),
            FileType::BlockDevice => EntryKind::BlockDevice(device),
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
        })
    }
}

/// Parses text, or hexadecimal after `0x`.
fn bytes(value: &str) -> Option<Vec<u8>> {
    let Some(digits) = value.strip_prefix("0x") else { return Some(value.as_bytes().to_vec()) };
    let digit = |digit: &u8| char::from(*digit).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

/// Seconds since 1970 with up to nine digits behind a point.
pub(crate) fn time(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let nanos = format!("{fraction:0<9.9}").parse().ok()?;
    Some(match (whole.starts_with('-'), nanos) {
        // A fraction goes away from zero, and nanoseconds go forward.
        (true, 1..) => Time { seconds: seconds.checked_sub(1)?, nanos: 1_000_000_000 - nanos },
        _ => Time { seconds, nanos },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, permissions: u16) -> Entry {
        let metadata = EntryMetadata { permissions, uid: 7, gid: 7, ..EntryMetadata::default() };
        Entry { path: path.into(), kind: EntryKind::Fifo, metadata }
    }

    #[test]
    fn lines_override_metadata_and_add_files() {
        let mut overrides = Overrides::default();
        overrides
            .add_list(
                "# owners\n/etc/shadow uid=0 gid=42 mode=640 # secret\n\n\
                 \"dev/my disk\" type=block device=8,1 mode=600\n\
                 bin/ping xattr.security.capability=0x0100ff xattr.user.note='two words' mtime=-1.25\n\
                 no/such mode=1\n",
            )
            .unwrap();
        let mut shadow = entry("etc/shadow", 0o600);
        overrides.apply(&mut shadow);
        assert_eq!((shadow.metadata.uid, shadow.metadata.gid, shadow.metadata.permissions), (0, 42, 0o640));
        let mut ping = entry("bin/ping", 0o755);
        ping.metadata.attributes.push((b"user.note".to_vec(), b"old".to_vec()));
        overrides.apply(&mut ping);
        let attribute = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
        let expected =
            [attribute("security.capability", &[1, 0, 0xff]), attribute("user.note", b"two words")];
        assert_eq!(ping.metadata.attributes, expected);
        assert_eq!(ping.metadata.modified, Some(Time { seconds: -2, nanos: 750_000_000 }));
        let error = overrides.missing().unwrap_err().to_string();
        assert!(error.contains("no/such"), "{error}");
        overrides.lines.remove(&b"no/such"[..]);
        let made = overrides.missing().unwrap();
        assert_eq!((made.len(), made[0].path.as_slice()), (1, &b"dev/my disk"[..]));
        assert_eq!(made[0].kind, EntryKind::BlockDevice(DeviceNumber { major: 8, minor: 1 }));
    }

    #[test]
    fn times_behind_the_latest_become_it() {
        let latest = Time { seconds: 100, nanos: 0 };
        let overrides = Overrides { latest: Some(latest), uid: Some(0), ..Overrides::default() };
        let mut old = entry("a", 0o644);
        old.metadata.modified = Some(Time { seconds: 99, nanos: 5 });
        // It was read long ago, or never, or a moment ago: that depends on who made an image of it before.
        for accessed in [None, Some(Time { seconds: 1, nanos: 0 }), Some(Time { seconds: 200, nanos: 0 })] {
            old.metadata.accessed = accessed;
            overrides.apply(&mut old);
            assert_eq!(old.metadata.modified, Some(Time { seconds: 99, nanos: 5 }));
            assert_eq!(old.metadata.accessed, old.metadata.modified);
        }
        let mut new = entry("b", 0o644);
        new.metadata.modified = Some(Time { seconds: 101, nanos: 0 });
        overrides.apply(&mut new);
        assert_eq!((new.metadata.modified, new.metadata.accessed), (Some(latest), Some(latest)));
        assert_eq!((old.metadata.uid, old.metadata.gid), (0, 7));
    }

    #[test]
    fn invalid_lines_are_reported_by_number() {
        let lines =
            ["a mode=8", "a b", "a type=char", "a xattr.other.x=1", "../a mode=1", "a 'b", "a type=link"];
        for line in lines {
            let error = Overrides::default().add_list(&format!("# first\n{line}\n")).unwrap_err();
            assert_eq!(error.number, 2, "{line}: {error}");
        }
    }
}
