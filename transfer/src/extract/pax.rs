//! Headers of tar members: a `ustar` header, preceded by an extended header (POSIX.1-2001, "pax") for values that do
//! not fit.
//!
//! Extensions of POSIX are those that GNU tar and bsdtar both read: extended attributes as `SCHILY.xattr.NAME`, sparse
//! files in GNU's format 1.0. Names are written as bytes, in any encoding. Owners are numbers only: user names of the
//! image mean nothing on the machine that extracts the archive.

use format::inode::FileType;
use format::timestamp::Timestamp;
use read::Metadata;
use tar::{EntryType, Header};

/// Size of a header in bytes, and the alignment of contents.
pub const BLOCK: usize = 512;
/// Size of a record in bytes: an archive ends with two empty blocks and padding to a whole record.
pub const RECORD: u64 = 10240;

/// Maximum values of the header's octal fields.
const ID_MAX: u32 = 0o777_7777;
const SIZE_MAX: u64 = 0o777_7777_7777;
const TIME_MAX: i64 = 0o777_7777_7777;
/// Maximum bytes of a name or a link's target, and of a name's prefix, in a header.
const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;

/// Types of members.
#[derive(Clone, Copy, Debug)]
pub enum MemberType<'m> {
    /// A regular file, with `stored` bytes after the header.
    File { stored: u64 },
    /// A file with holes in GNU's sparse format 1.0: map and data take `stored` bytes.
    Sparse { stored: u64, size: u64 },
    /// A hard link to the earlier member of this name.
    Link(&'m [u8]),
    /// A symlink to this target.
    Symlink(&'m [u8]),
    /// A file without contents.
    Other,
}

/// A member.
#[derive(Clone, Copy, Debug)]
pub struct Member<'m> {
    /// Relative path; directories end with a slash.
    pub name: &'m [u8],
    pub metadata: &'m Metadata,
    pub member_type: MemberType<'m>,
    /// Extended attributes with their values.
    pub xattrs: &'m [(Vec<u8>, Vec<u8>)],
}

impl Member<'_> {
    /// Appends the header, and the extended header where one is needed.
    pub fn push(&self, out: &mut Vec<u8>) {
        let mut header = Header::new_ustar();
        let mut records = Vec::new();
        self.set_type(&mut header, &mut records);
        self.set_name(&mut header, &mut records);
        self.set_numbers(&mut header, &mut records);
        for (name, value) in self.xattrs {
            push_record(&mut records, &xattr_keyword(name), value);
        }
        header.set_cksum();
        if !records.is_empty() {
            push_extended(out, self.metadata, &records);
        }
        out.extend_from_slice(header.as_bytes());
    }

    fn set_type(&self, header: &mut Header, records: &mut Vec<u8>) {
        header.set_entry_type(match (self.member_type, self.metadata.file_type) {
            (MemberType::Link(_), _) => EntryType::Link,
            (_, FileType::Directory) => EntryType::Directory,
            (_, FileType::Symlink) => EntryType::Symlink,
            (_, FileType::CharDevice) => EntryType::Char,
            (_, FileType::BlockDevice) => EntryType::Block,
            (_, FileType::Fifo) => EntryType::Fifo,
            (_, FileType::Regular | FileType::Socket) => EntryType::Regular,
        });
        if let MemberType::Link(target) | MemberType::Symlink(target) = self.member_type
            && !put(&mut header.as_old_mut().linkname, target)
        {
            push_record(records, b"linkpath", target);
        }
        let (major, minor) = self.metadata.device;
        // Numbers of devices have 14 and 18 bits: they fit.
        for set in [header.set_device_major(major), header.set_device_minor(minor)] {
            set.unwrap_or_default();
        }
    }

    fn set_name(&self, header: &mut Header, records: &mut Vec<u8>) {
        if let MemberType::Sparse { size, .. } = self.member_type {
            push_record(records, b"GNU.sparse.major", b"1");
            push_record(records, b"GNU.sparse.minor", b"0");
            push_record(records, b"GNU.sparse.name", self.name);
            push_record(records, b"GNU.sparse.realsize", size.to_string().as_bytes());
            put(&mut header.as_old_mut().name, b"GNUSparseFile.0/sparse");
            return;
        }
        if put(&mut header.as_old_mut().name, self.name) {
            return;
        }
        match split(self.name) {
            Some((prefix, name)) => {
                put(&mut header.as_old_mut().name, name);
                if let Some(ustar) = header.as_ustar_mut() {
                    put(&mut ustar.prefix, prefix);
                }
            }
            None => {
                push_record(records, b"path", self.name);
                // For readers without extended headers: the end of the name.
                let short = self.name.get(self.name.len() - NAME_BYTES..).unwrap_or(self.name);
                put(&mut header.as_old_mut().name, short);
            }
        }
    }

    fn set_numbers(&self, header: &mut Header, records: &mut Vec<u8>) {
        let metadata = self.metadata;
        header.set_mode(metadata.permissions.into());
        for (keyword, id, set) in [
            (&b"uid"[..], metadata.uid, Header::set_uid as fn(&mut Header, u64)),
            (b"gid", metadata.gid, Header::set_gid),
        ] {
            set(header, id.min(ID_MAX).into());
            if id > ID_MAX {
                push_record(records, keyword, id.to_string().as_bytes());
            }
        }
        let stored = match self.member_type {
            MemberType::File { stored } | MemberType::Sparse { stored, .. } => stored,
            _ => 0,
        };
        header.set_size(stored.min(SIZE_MAX));
        if stored > SIZE_MAX {
            push_record(records, b"size", stored.to_string().as_bytes());
        }
        let times = &metadata.times;
        header.set_mtime(times.modify.seconds.clamp(0, TIME_MAX).unsigned_abs());
        if times.modify.nanoseconds != 0 || !(0..=TIME_MAX).contains(&times.modify.seconds) {
            push_time(records, b"mtime", times.modify);
        }
        if times.access != times.modify {
            push_time(records, b"atime", times.access);
        }
    }
}

/// Stores bytes in a field, if they fit.
fn put(field: &mut [u8], bytes: &[u8]) -> bool {
    match field.get_mut(..bytes.len()) {
        Some(start) => {
            start.copy_from_slice(bytes);
            true
        }
        None => false,
    }
}

/// Splits a name at a slash into a prefix and the rest, both short enough.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = name.len().checked_sub(NAME_BYTES + 1)?;
    let max = name.len().checked_sub(2)?.min(PREFIX_BYTES);
    let at = (from..=max).find(|at| name.get(*at) == Some(&b'/') && *at > 0)?;
    Some((name.get(..at)?, name.get(at + 1..)?))
}

/// The keyword of an attribute. `=` would end it: as in GNU tar, `=` and `%` are in hexadecimal.
fn xattr_keyword(name: &[u8]) -> Vec<u8> {
    let mut keyword = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'=' => keyword.extend_from_slice(b"%3D"),
            b'%' => keyword.extend_from_slice(b"%25"),
            byte => keyword.push(*byte),
        }
    }
    keyword
}

/// Appends a time as a decimal number of seconds, which is negative before 1970.
fn push_time(records: &mut Vec<u8>, keyword: &[u8], time: Timestamp) {
    let sign = if time.seconds < 0 { "-" } else { "" };
    let (seconds, rest) = match time.nanoseconds {
        // The stored nanoseconds count forwards.
        1.. if time.seconds < 0 => (time.seconds + 1, 1_000_000_000 - time.nanoseconds),
        nanoseconds => (time.seconds, nanoseconds),
    };
    let seconds = seconds.unsigned_abs();
    push_record(records, keyword, format!("{sign}{seconds}.{rest:09}").as_bytes());
}

/// Appends `LENGTH KEYWORD=VALUE\n`, where the length includes itself.
fn push_record(records: &mut Vec<u8>, keyword: &[u8], value: &[u8]) {
    let rest = (keyword.len() + value.len() + 3) as u64;
    let mut length = rest + 1;
    while length != rest + digits(length) {
        length = rest + digits(length);
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(keyword);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Number of decimal digits.
pub fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

/// Appends an extended header: a separate member before the one that it extends.
fn push_extended(out: &mut Vec<u8>, metadata: &Metadata, records: &[u8]) {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XHeader);
    put(&mut header.as_old_mut().name, b"PaxHeaders/0");
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(records.len() as u64);
    header.set_mtime(metadata.times.modify.seconds.clamp(0, TIME_MAX).unsigned_abs());
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(records);
    pad(out, records.len() as u64);
}

/// Appends the padding after contents of this length.
pub fn pad(out: &mut Vec<u8>, length: u64) {
    out.resize(out.len() + padding(length), 0);
}

/// Bytes of padding from the end of contents to a whole block.
pub fn padding(length: u64) -> usize {
    (length.wrapping_neg() % BLOCK as u64) as usize // less than a block
}

/// The end of an archive of this length.
pub fn tail(length: u64) -> Vec<u8> {
    let end = (length + 2 * BLOCK as u64).next_multiple_of(RECORD);
    vec![0; (end - length) as usize] // less than two records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        let record = |value: &[u8]| {
            let mut records = Vec::new();
            push_record(&mut records, b"k", value);
            let text = String::from_utf8(records.clone()).unwrap();
            assert_eq!(text.split(' ').next().unwrap().parse::<usize>().unwrap(), records.len());
            records.len()
        };
        // Nine bytes, and the lengths around which a digit more makes the record longer by two.
        assert_eq!(record(b"1234"), 9);
        for length in [4, 5, 92, 93, 94, 95, 990, 991, 992, 993, 994] {
            record(&vec![b'x'; length]);
        }
    }

    #[test]
    fn names_are_split_only_where_both_parts_fit() {
        let long = [vec![b'p'; 155], vec![b'/'], vec![b'n'; 100]].concat();
        assert_eq!(split(&long).map(|(p, n)| (p.len(), n.len())), Some((155, 100)));
        assert_eq!(split(&[b"p/".to_vec(), vec![b'n'; 101]].concat()), None);
        // Not at the trailing slash of a directory.
        assert_eq!(split(&[vec![b'n'; 120], vec![b'/']].concat()), None);
    }

    #[test]
    fn times_before_1970_count_backwards() {
        for (seconds, nanoseconds, text) in [
            (-2, 500_000_000, "-1.500000000"),
            (-1, 1, "-0.999999999"),
            (-2, 0, "-2.000000000"),
            (1, 5, "1.000000005"),
        ] {
            let mut records = Vec::new();
            push_time(&mut records, b"mtime", Timestamp { seconds, nanoseconds });
            assert_eq!(String::from_utf8(records).unwrap().split_once('=').unwrap().1, format!("{text}\n"));
        }
    }

    #[test]
    fn archives_end_at_a_whole_record() {
        assert_eq!(tail(0).len(), 10240);
        assert_eq!(tail(10240 - 1024).len(), 1024);
        assert_eq!(tail(10240 - 512).len(), 10240 + 512);
    }
}
