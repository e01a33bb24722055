//! Extended headers (POSIX.1-2001, "pax"): records of `LENGTH KEY=VALUE` and a newline.
//!
//! The crate `tar` splits records at newlines, which values of extended attributes may contain; here the lengths are
//! used, as in the standard.
//!
//! # Invariants
//! The extended headers of one member, and the global ones, are limited to [`KEPT_MAX`] bytes each.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use base::time::Time;
use format::attr::acl;

use super::access;
use crate::item::Loss;

/// Maximum size of extended headers in bytes: attributes of a file are below a MiB in total.
const KEPT_MAX: usize = 16 << 20;

/// The extended headers of a member.
#[derive(Clone, Debug, Default)]
pub struct Records {
    values: HashMap<Vec<u8>, Vec<u8>>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Data runs of a sparse file in GNU formats 0.0 and 0.1: offset and length alternate.
    pub sparse: Vec<u64>,
    /// Metadata that is not preserved.
    pub lost: Vec<Loss>,
    /// Size in bytes.
    kept: usize,
    /// Global headers, which apply unless these override them.
    global: Option<Arc<Self>>,
}

impl Records {
    /// Sets the global headers.
    pub fn set_global(&mut self, global: &Arc<Self>) {
        self.global = Some(Arc::clone(global));
    }

    /// Adds the records of a header; later ones override earlier ones.
    pub fn add(&mut self, mut header: &[u8]) -> io::Result<()> {
        while !header.is_empty() {
            let (record, rest) = first(header).ok_or_else(|| bad("an extended header is damaged"))?;
            header = rest;
            let at =
                record.iter().position(|byte| *byte == b'=').ok_or_else(|| bad("a record has no value"))?;
            let (key, value) = record.split_at(at);
            self.put(key, value.get(1..).unwrap_or_default())?;
            if self.kept > KEPT_MAX {
                return Err(bad("extended headers are larger than 16 MiB"));
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        /// Overhead of an entry.
        const EACH: usize = 16;
        let mut replaced = None;
        self.kept += key.len() + value.len() + EACH;
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            let name = attribute_name(name);
            if crate::item::is_kept(&name) {
                replaced = self.attributes.insert(name, value.to_vec());
            } else {
                self.lost.push(Loss::Attribute);
            }
        } else if let Some(which) = key.strip_prefix(b"SCHILY.acl.") {
            self.put_list(which, value);
        } else if matches!(key, b"GNU.sparse.offset" | b"GNU.sparse.numbytes") {
            self.sparse.push(number(value).ok_or_else(|| bad("a sparse map is damaged"))?);
        } else if key == b"GNU.sparse.map" {
            let numbers = value.split(|byte| *byte == b',').map(number);
            self.sparse = numbers.collect::<Option<_>>().ok_or_else(|| bad("a sparse map is damaged"))?;
        } else {
            replaced = self.values.insert(key.to_vec(), value.to_vec());
        }
        self.kept -= replaced.map_or(0, |value| key.len() + value.len() + EACH);
        Ok(())
    }

    /// An ACL as text. An ACL that is also an attribute takes precedence.
    fn put_list(&mut self, which: &[u8], text: &[u8]) {
        let name = match which {
            _ if text.is_empty() => return,
            b"access" => acl::LINUX_ACCESS,
            b"default" => acl::LINUX_DEFAULT,
            _ => return self.lost.push(Loss::AccessList),
        };
        match access::list(text) {
            Some((_, true)) if which == b"access" => {}
            Some((list, _)) => {
                self.attributes.entry(name.into()).or_insert(list);
            }
            None => self.lost.push(Loss::AccessList),
        }
    }

    /// A value; an empty one means that there is none.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        let global = || self.global.as_ref()?.values.get(key.as_bytes());
        let value = self.values.get(key.as_bytes()).or_else(global);
        value.map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// Extended attributes, sorted by name.
    pub fn attributes(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let all = |records: &Self| records.attributes.clone();
        let mut attributes = self.global.as_deref().map(all).unwrap_or_default();
        attributes.extend(all(self));
        attributes.into_iter().collect()
    }

    /// A value that is a number.
    pub fn number(&self, key: &str) -> io::Result<Option<u64>> {
        self.get(key)
            .map(|value| number(value).ok_or_else(|| bad(&format!("{key} is not a number"))))
            .transpose()
    }

    /// A value that is a time.
    pub fn time(&self, key: &str) -> io::Result<Option<Time>> {
        let time = |value| std::str::from_utf8(value).ok().and_then(crate::overrides::time);
        self.get(key).map(|value| time(value).ok_or_else(|| bad(&format!("{key} is not a time")))).transpose()
    }
}

/// Decodes the name of an attribute in GNU format: `%` and `=` are in hexadecimal.
fn attribute_name(key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((first, behind)) = rest.split_first() {
        let byte;
        (rest, byte) = match rest {
            [b'%', b'2', b'5', behind @ ..] => (behind, b'%'),
            [b'%', b'3', b'D', behind @ ..] => (behind, b'='),
            _ => (behind, *first),
        };
        name.push(byte);
    }
    name
}

/// Splits off the first record, without its length and newline.
fn first(header: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = header.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(number(header.get(..blank)?)?).ok()?;
    let record = header.get(blank + 1..length)?.strip_suffix(b"\n")?;
    // Some writers pad with NUL.
    let rest = header.get(length..)?;
    Some((record, if rest.first() == Some(&0) { &[] } else { rest }))
}

/// Parses a decimal number.
pub fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The error for a damaged archive.
pub fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_hold_newlines() {
        let mut records = Records::default();
        records.add(b"11 size=12\n30 SCHILY.xattr.user.a=\n\0=\n\n\n12 mtime=1.5\n").unwrap_err();
        let mut records = Records::default();
        records.add(b"11 size=12\n28 SCHILY.xattr.user.a=\n\0=\n\n13 mtime=1.5\n\0\0").unwrap();
        assert_eq!(records.number("size").unwrap(), Some(12));
        assert_eq!(records.attributes(), [(b"user.a".to_vec(), b"\n\0=\n".to_vec())]);
        assert_eq!(records.time("mtime").unwrap(), Some(Time { seconds: 1, nanos: 500_000_000 }));
    }

    fn record(key: &str, value: &str) -> Vec<u8> {
        let length = key.len() + value.len() + 3;
        let digits = (length + 1).to_string().len();
        format!("{} {key}={value}\n", length + digits).into_bytes()
    }

    #[test]
    fn what_global_headers_say_holds_where_nothing_else_is_said() {
        let mut global = Records::default();
        global
            .add(&[record("uid", "7"), record("gid", "8"), record("SCHILY.xattr.user.a", "1")].concat())
            .unwrap();
        let mut records = Records::default();
        records.set_global(&Arc::new(global));
        records
            .add(&[record("uid", "9"), record("gid", ""), record("SCHILY.xattr.user.b", "2")].concat())
            .unwrap();
        assert_eq!((records.number("uid").unwrap(), records.number("gid").unwrap()), (Some(9), None));
        let attribute = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        assert_eq!(records.attributes(), [attribute(b"user.a", b"1"), attribute(b"user.b", b"2")]);
    }

    #[test]
    fn headers_upon_headers_do_not_fill_memory() {
        let mut records = Records::default();
        // Repeated records take no more memory.
        let same = record("comment", &"x".repeat(1 << 20));
        (0..100).for_each(|_| records.add(&same).unwrap());
        let mut other = (0..100).map(|n| record(&format!("comment.{n}"), &"x".repeat(1 << 20)));
        let error = other.find_map(|header| records.add(&header).err()).unwrap();
        assert!(error.to_string().contains("16 MiB"), "{error}");
        let losses = record("SCHILY.xattr.system.other", "").repeat(100_000);
        assert!((0..100).any(|_| records.add(&losses).is_err()));
    }

    #[test]
    fn damaged_records_are_refused() {
        let damaged: [&[u8]; 6] =
            [b"5 a=b", b"x a=b\n", b"99 a=b\n", b"0 a=b\n", b"5 ab\n", b"18446744073709551616 a=b\n"];
        for header in damaged {
            assert!(Records::default().add(header).is_err(), "{header:?}");
        }
    }
}
