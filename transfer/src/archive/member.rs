//! Members of a tar stream: headers.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use base::time::Time;
use tar::{EntryType, Header};
use volume::{DeviceNumber, Settings};

use super::links::{Counted, Nested};
use super::records::{Records, bad, number};
use super::unpack::Stream;
use crate::item::{Data, EntryKind, EntryMetadata, Item, Loss, StoredSize, normalized};

/// Size of a header in bytes, and the alignment of contents.
const BLOCK: u64 = 512;
/// Maximum size of an extended header or long name.
const EXTENDED_MAX: u64 = 16 << 20;
/// Maximum length of a path or link target: sixteen times PATH_MAX.
const PATH_MAX: usize = 64 << 10;
/// Maximum number of digits of a number.
const DIGITS_MAX: usize = 20;
/// Maximum number of data runs of a sparse file.
const RUNS_MAX: usize = 1 << 20;

/// Reads members in order.
pub struct Members<R> {
    input: Counted<R>,
    /// Remaining bytes of the last member's contents and of their padding.
    left: u64,
    padding: u64,
    global: Arc<Records>,
    /// Buffer for headers: creating one takes longer than copying it.
    blank: Header,
    /// A header was read: it is an archive.
    begun: bool,
    /// A block that was read ahead.
    ahead: Option<Header>,
    /// The archive has extended headers.
    is_pax: bool,
    nested: Nested,
    /// The key in `nested` of the last member, a file whose first block was not read yet.
    unread: Option<u64>,
    /// Where contents would end that were interpreted as members.
    ambiguous_end: Option<u64>,
}

/// A member.
#[derive(Debug)]
pub struct Member {
    /// Path, as in [`Entry::path`](crate::Entry::path).
    pub path: Vec<u8>,
    /// File type; a regular file without contents.
    pub kind: EntryKind,
    /// Metadata.
    pub metadata: EntryMetadata,
    /// Ranges of the contents in the file, in order. None is empty.
    pub runs: Vec<Range<u64>>,
    /// Metadata that is not preserved.
    pub lost: Vec<Loss>,
}

impl Member {
    /// Returns what it removes, if its name is that of a whiteout.
    ///
    /// # Errors
    /// A whiteout without a name.
    pub fn whiteout(&self) -> io::Result<Option<Item>> {
        let Some((dir, name)) = crate::item::split(&self.path) else { return Ok(None) };
        let Some(hidden) = name.strip_prefix(b".wh.") else { return Ok(None) };
        Ok(Some(match hidden {
            b".wh..opq" => Item::Emptied(dir.to_vec()),
            b"" | b"." | b".." => {
                let path = String::from_utf8_lossy(&self.path);
                return Err(bad(&format!("{path:?} is a whiteout without a name")));
            }
            hidden => Item::Removed(read::join(dir, hidden)),
        }))
    }
}

/// Headers that precede a member.
#[derive(Default)]
struct Before {
    records: Records,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl<R: Stream> Members<R> {
    /// Starts at the beginning of a stream.
    pub fn new(input: R) -> Self {
        Self {
            input: Counted::new(input),
            left: 0,
            padding: 0,
            global: Arc::default(),
            blank: Header::new_old(),
            begun: false,
            ahead: None,
            is_pax: false,
            nested: Nested::default(),
            unread: None,
            ambiguous_end: None,
        }
    }

    /// Returns the next member; its contents follow, for [`read_data`](Self::read_data).
    ///
    /// # Errors
    /// Damage, and errors of the stream.
    pub fn next_member(&mut self) -> io::Result<Option<Member>> {
        self.skip()?;
        let mut before = Before::default();
        while let Some(header) = self.header()? {
            self.is_pax |= matches!(header.entry_type(), EntryType::XHeader | EntryType::XGlobalHeader);
            match header.entry_type() {
                EntryType::XHeader => before.records.add(&self.extended(&header)?)?,
                EntryType::XGlobalHeader => {
                    let extended = self.extended(&header)?;
                    // There are no other references between members.
                    Arc::make_mut(&mut self.global).add(&extended)?;
                }
                EntryType::GNULongName => before.long_name = Some(self.long(&header)?),
                EntryType::GNULongLink => before.long_link = Some(self.long(&header)?),
                // The label of the archive (GNU tar `--label`).
                other if other.as_byte() == b'V' => {
                    drop(self.extended(&header)?);
                    before = Before::default();
                }
                other if other.as_byte() == b'M' => {
                    return Err(bad(
                        "this is a part of a multi-volume archive: join the parts first (tar -M)",
                    ));
                }
                _ => return self.member(&header, before).map(Some),
            }
        }
        Ok(None)
    }

    /// Reads `length` bytes of the contents of the last member.
    ///
    /// # Errors
    /// The stream is shorter.
    pub fn read_data(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > self.left {
            return Err(bad("a sparse map has more data than the file"));
        }
        self.left -= length;
        let bytes = self.exactly(length)?;
        if let Some(key) = self.unread.take() {
            let mut block = self.blank.clone();
            block.as_mut_bytes().iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
            if is_header(&block) {
                self.nested.add(key, block.as_bytes());
            }
        }
        Ok(bytes)
    }

    fn exactly(&mut self, length: u64) -> io::Result<Vec<u8>> {
        /// Contents are written in whole blocks: with space for the rest of one they need not be moved.
        const UNIT: u64 = 4096;
        let room = length.checked_next_multiple_of(UNIT).and_then(|room| usize::try_from(room).ok());
        let mut bytes = Vec::with_capacity(room.ok_or_else(|| bad("a member is too large"))?);
        self.input.by_ref().take(length).read_to_end(&mut bytes)?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends within a member")),
        }
    }

    fn skip(&mut self) -> io::Result<()> {
        if self.unread.is_some() {
            self.read_data(self.left.min(BLOCK))?;
        }
        let length = std::mem::take(&mut self.left) + std::mem::take(&mut self.padding);
        if length > 0 && self.input.skip(length)? != length {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends within a member"));
        }
        Ok(())
    }

    /// Returns the next header; `None` at the end, which two empty blocks mark, or the end of the stream.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let Some(header) = self.block()? else { return Ok(None) };
        if is_empty(&header) {
            // Many writers omit the second one, or both.
            return match self.block()? {
                Some(next) if !is_empty(&next) => Err(bad(
                    "a single empty block between members (two end an archive): it is damaged, or consists of \
                     several archives",
                )),
                _ => Ok(None),
            };
        }
        if !is_header(&header) {
            return Err(bad("not a tar archive, or a damaged one: wrong checksum of a header"));
        }
        self.begun = true;
        Ok(Some(header))
    }

    /// Reads the next block as a header; `None` at the end of the stream.
    fn block(&mut self) -> io::Result<Option<Header>> {
        if let Some(block) = self.ahead.take() {
            return Ok(Some(block));
        }
        let mut header = self.blank.clone();
        let bytes = header.as_mut_bytes();
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) if !self.begun => {
                    return Err(bad("not a tar archive: shorter than a header"));
                }
                Ok(0) => return Err(bad("the archive ends within a header")),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(header))
    }

    /// Reads the rest of the stream after the last member, which verifies its checksums.
    ///
    /// # Errors
    /// Damage, and errors of the stream; an empty stream unless `may_be_empty`.
    pub fn finish(mut self, may_be_empty: bool) -> io::Result<()> {
        if !self.begun && !may_be_empty {
            return Err(bad("not a tar archive: empty, or zeros at the start"));
        }
        if let Some(behind) = self.ambiguous_end.and_then(|end| end.checked_sub(self.input.at)) {
            self.input.skip(behind)?;
            if self.block()?.is_some_and(|block| is_header(&block)) {
                return Err(bad(
                    "ambiguous archive: a hard link has a size, and contents or members may follow it. Extract it \
                     with the program that created it",
                ));
            }
        }
        self.input.finish()
    }

    /// Reads an extended header.
    fn extended(&mut self, header: &Header) -> io::Result<Vec<u8>> {
        let size = count(&header.as_old().size)?;
        if size > EXTENDED_MAX {
            return Err(bad("an extended header is larger than 16 MiB"));
        }
        self.padding = size.next_multiple_of(BLOCK) - size;
        let bytes = self.exactly(size)?;
        self.skip()?;
        Ok(bytes)
    }

    /// Reads a long name in GNU format, which ends with NUL.
    fn long(&mut self, header: &Header) -> io::Result<Vec<u8>> {
        if count(&header.as_old().size)? > PATH_MAX as u64 {
            return Err(too_long());
        }
        let mut name = self.extended(header)?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        name.truncate(end);
        Ok(name)
    }

    fn member(&mut self, header: &Header, before: Before) -> io::Result<Member> {
        let Before { mut records, long_name, long_link } = before;
        records.set_global(&self.global);
        let stored = match records.number("size")? {
            Some(size) => size,
            None => count(&header.as_old().size)?,
        };
        let padded = stored.checked_next_multiple_of(BLOCK).ok_or_else(|| bad("a member is too large"))?;
        let raw = records.get("GNU.sparse.name").or(records.get("path")).map(<[u8]>::to_vec);
        let raw = raw.or(long_name).unwrap_or_else(|| header.path_bytes().into_owned());
        let named = |path: &[u8]| {
            let outside = || bad(&format!("{:?} leaves the tree by \"..\"", String::from_utf8_lossy(path)));
            normalized(path).ok_or_else(outside)
        };
        let path = named(&raw)?;
        let link = records.get("linkpath").map(<[u8]>::to_vec).or(long_link);
        let link = link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        if raw.len().max(link.len()) > PATH_MAX {
            return Err(too_long());
        }
        let entry_type = header.entry_type();
        let device = || -> io::Result<DeviceNumber> {
            let number = |number: Option<u32>| number.ok_or_else(|| bad("a device without a device number"));
            Ok(DeviceNumber {
                major: number(header.device_major()?)?,
                minor: number(header.device_minor()?)?,
            })
        };
        let target = if entry_type == EntryType::Link { named(&link)? } else { Vec::new() };
        (self.left, self.padding) = (stored, padded - stored);
        if has_no_contents(entry_type) && stored > 0 {
            self.expect_no_contents(&path, &target)?;
        }
        let mut runs = Vec::new();
        let kind = match entry_type {
            EntryType::Link => {
                self.nested.link(&path, &target);
                EntryKind::Link(target)
            }
            EntryType::Symlink => EntryKind::Symlink(link),
            EntryType::Char => EntryKind::CharDevice(device()?),
            EntryType::Block => EntryKind::BlockDevice(device()?),
            EntryType::Fifo => EntryKind::Fifo,
            EntryType::Directory => EntryKind::Directory,
            // In the oldest format, a trailing slash marks a directory.
            EntryType::Regular if raw.ends_with(b"/") => EntryKind::Directory,
            // With a list of its entries (GNU tar `--incremental`).
            other if other.as_byte() == b'D' => EntryKind::Directory,
            _ => {
                let key = self.nested.key(&path);
                self.nested.forget(key);
                self.unread = (stored > 0).then_some(key);
                let size;
                (size, runs) = self.contents(header, &records, stored)?;
                EntryKind::File { size, data: Data::default() }
            }
        };
        let metadata = metadata(header, &records, &runs)?;
        let mut lost = records.lost;
        if !self.global.lost.is_empty() {
            lost.append(&mut Arc::make_mut(&mut self.global).lost);
        }
        Ok(Member { path, kind, metadata, runs, lost })
    }

    /// Handles a member that has a size but no contents: many writers store the size of the file for a hard link, and
    /// any size for a directory. The following block decides whether contents follow, which are skipped: see
    /// [`super::links`].
    fn expect_no_contents(&mut self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let behind = self.left + self.padding - BLOCK;
        let next = self.block()?;
        // Padding is not included.
        (self.left, self.padding) = (0, behind);
        match next {
            Some(next) if is_empty(&next) => self.skip_zeros()?,
            Some(next) if is_header(&next) => {
                if self.nested.begins_with(target, next.as_bytes()) {
                    return if self.is_pax { Ok(()) } else { Err(ambiguous(path)) };
                }
                self.ambiguous_end = self.ambiguous_end.max(self.input.at.checked_add(behind));
                (self.padding, self.ahead) = (0, Some(next));
            }
            Some(_) => {}
            None => self.padding = 0,
        }
        Ok(())
    }

    /// Skips zeros of contents, or to the end of a stream that contains nothing else.
    fn skip_zeros(&mut self) -> io::Result<()> {
        while self.padding > 0 {
            match self.block()? {
                Some(block) => {
                    self.padding -= BLOCK;
                    if !is_empty(&block) {
                        break;
                    }
                }
                None => self.padding = 0,
            }
        }
        Ok(())
    }

    /// Returns the size of a file and the ranges of its contents.
    fn contents(
        &mut self,
        header: &Header,
        records: &Records,
        stored: u64,
    ) -> io::Result<(u64, Vec<Range<u64>>)> {
        let (size, map) = if header.entry_type() == EntryType::GNUSparse {
            self.old_sparse(header)?
        } else if records.get("GNU.sparse.major") == Some(b"1") {
            let size =
                records.number("GNU.sparse.realsize")?.ok_or_else(|| bad("a sparse file has no size"))?;
            (size, self.map_in_front()?)
        } else if let Some(size) = records.number("GNU.sparse.size")? {
            (size, records.sparse.clone())
        } else {
            return Ok((stored, (stored > 0).then_some(0..stored).into_iter().collect()));
        };
        let mut runs = Vec::with_capacity(map.len() / 2);
        let mut at = 0;
        for pair in map.chunks(2) {
            let &[offset, length] = pair else { return Err(bad("a sparse map is damaged")) };
            let end = offset.checked_add(length).filter(|end| offset >= at && *end <= size);
            at = end.ok_or_else(|| bad("a sparse map is damaged"))?;
            if length > 0 {
                runs.push(offset..at);
            }
        }
        if bytes(&runs) > self.left {
            return Err(bad("a sparse map has more data than the file"));
        }
        Ok((size, runs))
    }

    /// GNU format 1.0: the map precedes the data, as lines of decimal numbers, padded to a block.
    fn map_in_front(&mut self) -> io::Result<Vec<u64>> {
        let (mut numbers, mut line, mut wanted) = (Vec::new(), Vec::new(), 1);
        while numbers.len() < wanted {
            for byte in self.read_data(BLOCK)? {
                if numbers.len() >= wanted {
                    break;
                }
                if byte != b'\n' {
                    line.push(byte);
                    match line.len() <= DIGITS_MAX {
                        true => continue,
                        false => return Err(bad("a sparse map is damaged")),
                    }
                }
                let value = number(&line).ok_or_else(|| bad("a sparse map is damaged"))?;
                line.clear();
                if numbers.is_empty() {
                    let count = usize::try_from(value).ok().filter(|count| *count <= RUNS_MAX);
                    wanted = 1 + 2 * count.ok_or_else(|| bad("a sparse map is too long"))?;
                }
                numbers.push(value);
            }
        }
        numbers.remove(0);
        Ok(numbers)
    }

    /// GNU's old format: four runs in the header, and more in extension headers.
    fn old_sparse(&mut self, header: &Header) -> io::Result<(u64, Vec<u64>)> {
        let gnu = header.as_gnu().ok_or_else(|| bad("a sparse file without a GNU header"))?;
        let mut map = Vec::new();
        let add = |map: &mut Vec<u64>, sparse: &[tar::GnuSparseHeader]| -> io::Result<()> {
            for run in sparse.iter().filter(|run| !run.is_empty()) {
                map.extend([run.offset()?, run.length()?]);
            }
            Ok(())
        };
        add(&mut map, &gnu.sparse)?;
        let mut more = gnu.is_extended();
        while more {
            let mut extended = tar::GnuExtSparseHeader::new();
            // Not included in the member's size.
            self.input.read_exact(extended.as_mut_bytes())?;
            add(&mut map, extended.sparse())?;
            more = extended.is_extended();
            if map.len() > 2 * RUNS_MAX {
                return Err(bad("a sparse map is too long"));
            }
        }
        Ok((gnu.real_size()?, map))
    }
}

/// A link with a size in an archive whose format stores no contents of links, followed by data that begins like them.
fn ambiguous(path: &[u8]) -> io::Error {
    bad(&format!(
        "ambiguous archive: the hard link {:?} has a size, and its contents, which are an archive, or members may \
         follow it. Extract it with the program that created it",
        String::from_utf8_lossy(path)
    ))
}

fn too_long() -> io::Error {
    bad("a name is longer than 64 KiB")
}

/// Whether a member of this type has no contents. (A directory of GNU tar `--incremental` has.)
fn has_no_contents(entry_type: EntryType) -> bool {
    use EntryType::{Block, Char, Directory, Fifo, Link, Symlink};
    matches!(entry_type, Link | Symlink | Char | Block | Directory | Fifo)
}

fn is_empty(block: &Header) -> bool {
    block.as_bytes().iter().all(|byte| *byte == 0)
}

/// Whether a block has a valid header checksum.
fn is_header(block: &Header) -> bool {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let bytes = block.as_bytes();
    numeric(&block.as_old().cksum).is_ok_and(|stored| {
        let (whole, field) = (sum(bytes), sum(bytes.get(148..156).unwrap_or_default()));
        stored == i64::from(whole - field + 8 * u32::from(b' '))
    })
}

/// Parses a number of a header: octal digits, or, with the highest bit set, binary in two's complement, as GNU tar
/// writes large and negative numbers. Some writers leave unknown ones blank.
fn numeric(field: &[u8]) -> io::Result<i64> {
    let damaged = || bad("a number in a header has other characters than digits: the archive is damaged");
    if let Some((first @ 0x80.., rest)) = field.split_first() {
        let start = if first & 0x40 == 0 { i64::from(first & 0x3f) } else { i64::from(*first as i8) };
        let binary = rest.iter().try_fold(start, |sum, byte| Some(sum.checked_mul(256)? + i64::from(*byte)));
        return binary.ok_or_else(damaged);
    }
    let is_blank = |byte: &u8| matches!(byte, 0 | b' ');
    let begin = field.iter().position(|byte| !is_blank(byte)).unwrap_or(field.len());
    let digits = field.get(begin..).unwrap_or_default();
    let end = digits.iter().position(is_blank).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if !rest.iter().all(is_blank) {
        return Err(damaged());
    }
    // At most twelve digits of three bits.
    digits.iter().try_fold(0, |sum, digit| match digit {
        b'0'..=b'7' => Ok(sum << 3 | i64::from(digit - b'0')),
        _ => Err(damaged()),
    })
}

/// Parses a number that must not be negative.
fn count(field: &[u8]) -> io::Result<u64> {
    u64::try_from(numeric(field)?)
        .map_err(|_| bad("the size of a member is negative: the archive is damaged"))
}

/// The sum of the lengths of runs.
fn bytes(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

fn stored(runs: &[Range<u64>]) -> StoredSize {
    let mut stored = StoredSize::default();
    runs.iter().for_each(|run| stored.add(run));
    stored
}

fn metadata(header: &Header, records: &Records, runs: &[Range<u64>]) -> io::Result<EntryMetadata> {
    let fields = header.as_old();
    let id = |key: &str, field: &[u8]| {
        let id = match records.number(key)? {
            Some(id) => i64::try_from(id).unwrap_or(i64::MAX),
            None => numeric(field)?,
        };
        u32::try_from(id).map_err(|_| bad(&format!("{key} has more than 32 bits")))
    };
    let modified = match records.time("mtime")? {
        Some(time) => time,
        None => Time { seconds: numeric(&fields.mtime)?, nanos: 0 },
    };
    Ok(EntryMetadata {
        permissions: (numeric(&fields.mode)? & 0o7777) as u16,
        uid: id("uid", &fields.uid)?,
        gid: id("gid", &fields.gid)?,
        accessed: records.time("atime")?.or(Some(modified)),
        modified: Some(modified),
        attributes: records.attributes(),
        settings: Settings::default(),
        stored: Some(stored(runs)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_headers_are_octal_or_binary() {
        let good: [(&[u8], i64); 9] = [
            (b"0000644\0", 0o644),
            (b"   644 \0", 0o644),
            (b"644\0\0\0\0\0", 0o644),
            (b"777777777777", 0o777_777_777_777),
            (b"        ", 0),
            (b"\0\0\0\0\0\0\0\0", 0),
            (b"\x80\0\0\0\0\x01\x02\x03", 0x010203),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", -2),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", i64::MAX),
        ];
        for (field, value) in good {
            assert_eq!(numeric(field).unwrap(), value, "{field:?}");
        }
        let damaged: [&[u8]; 5] = [b"0o644", b"64 4\0\0\0\0", b"8", b"-1", b"\x80\0\0\x01\0\0\0\0\0\0\0\0"];
        for field in damaged {
            assert!(numeric(field).is_err(), "{field:?}");
        }
        assert!(count(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe").is_err());
    }
}
