//! Extended headers (POSIX.1-2001, "pax"): records of `LENGTH KEY=VALUE` and a newline.
//!
//! The crate `tar` takes them apart at newlines, which values of extended attributes may hold; here the lengths are
//! believed, as the standard says.

use std::collections::HashMap;
use std::io;

use base::time::Time;

use crate::item::Lost;

/// What extended headers say of a member.
#[derive(Clone, Debug, Default)]
pub struct Records {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// Extended attributes in their order.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Runs of data of a sparse file in GNU's formats 0.0 and 0.1: numbers, offset and length in turn.
    pub sparse: Vec<u64>,
    /// What is not kept.
    pub lost: Vec<Lost>,
}

impl Records {
    /// Adds the records of a header; later ones win.
    pub fn add(&mut self, mut header: &[u8]) -> io::Result<()> {
        while !header.is_empty() {
            let (record, rest) = first(header).ok_or_else(|| bad("an extended header is damaged"))?;
            header = rest;
            let at =
                record.iter().position(|byte| *byte == b'=').ok_or_else(|| bad("a record has no value"))?;
            let (key, value) = record.split_at(at);
            self.put(key, value.get(1..).unwrap_or_default())?;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            if crate::item::is_kept(name) {
                self.attributes.retain(|(there, _)| there != name);
                self.attributes.push((name.to_vec(), value.to_vec()));
            } else {
                self.lost.push(Lost::Attribute);
            }
        } else if key.starts_with(b"SCHILY.acl.") {
            self.lost.push(Lost::AccessList);
        } else if matches!(key, b"GNU.sparse.offset" | b"GNU.sparse.numbytes") {
            self.sparse.push(number(value).ok_or_else(|| bad("a sparse map is damaged"))?);
        } else if key == b"GNU.sparse.map" {
            let numbers = value.split(|byte| *byte == b',').map(number);
            self.sparse = numbers.collect::<Option<_>>().ok_or_else(|| bad("a sparse map is damaged"))?;
        } else {
            self.values.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    /// A value, unless it is empty, which stands for none.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key.as_bytes()).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// A value that is a number.
    pub fn number(&self, key: &str) -> io::Result<Option<u64>> {
        self.get(key)
            .map(|value| number(value).ok_or_else(|| bad(&format!("{key} is no number"))))
            .transpose()
    }

    /// A value that is a time.
    pub fn time(&self, key: &str) -> io::Result<Option<Time>> {
        let time = |value| std::str::from_utf8(value).ok().and_then(crate::overrides::time);
        self.get(key).map(|value| time(value).ok_or_else(|| bad(&format!("{key} is no time")))).transpose()
    }
}

/// The first record, without its length and newline, and what is behind it.
fn first(header: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = header.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(number(header.get(..blank)?)?).ok()?;
    let record = header.get(blank + 1..length)?.strip_suffix(b"\n")?;
    // Some writers pad with NUL.
    let rest = header.get(length..)?;
    Some((record, if rest.first() == Some(&0) { &[] } else { rest }))
}

/// A number in decimal.
pub fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What a damaged archive is.
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
        assert_eq!(records.attributes, [(b"user.a".to_vec(), b"\n\0=\n".to_vec())]);
        assert_eq!(records.time("mtime").unwrap(), Some(Time { seconds: 1, nanos: 500_000_000 }));
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
