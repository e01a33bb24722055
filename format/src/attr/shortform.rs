//! Attributes within the inode: packed one behind the other.

use super::{Attr, AttrValue, flags, verify_namespace};
use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16};

const NAME: &str = "short-form attributes";

crate::ondisk! {
    /// What they begin with.
    pub struct AttrShortformHeader("short-form attributes", 4) {
        /// Bytes of all, this header included.
        totsize: U16 = Uint,
        /// Attributes.
        count: u8 = Uint,
        /// Zero.
        padding: u8 = Padding,
    }

    /// What an attribute begins with; name and value follow.
    pub struct AttrShortformEntry("short-form attribute", 3) {
        /// Bytes of the name.
        namelen: u8 = Uint,
        /// Bytes of the value.
        valuelen: u8 = Uint,
        /// Namespace.
        flags: u8 = Hex,
    }
}

/// Verified short-form attributes.
#[derive(Clone, Copy, Debug)]
pub struct AttrShortform<'a> {
    /// Counts.
    pub header: &'a AttrShortformHeader,
    entries: &'a [u8],
    geometry: &'a Geometry,
}

impl<'a> AttrShortform<'a> {
    /// Verifies the header; `bytes` are the whole area of the attribute fork. Attributes are verified as they are
    /// walked.
    pub fn verify(bytes: &'a [u8], geometry: &'a Geometry) -> Result<Self, Damage> {
        let header = AttrShortformHeader::view(bytes)
            .ok_or_else(|| Damage::short(NAME, AttrShortformHeader::SIZE, bytes.len()))?;
        let size = usize::from(header.totsize.get());
        let entries = bytes.get(AttrShortformHeader::SIZE..size).ok_or_else(|| {
            let expected = format_args!("{} to {}", AttrShortformHeader::SIZE, bytes.len()).to_string();
            Damage::new(NAME, "totsize", expected, size)
        })?;
        Ok(Self { header, entries, geometry })
    }

    /// The attributes. A damaged name or flag yields an error and the walk goes on; where an attribute is cut short it
    /// ends.
    pub fn entries(&self) -> AttrShortformEntries<'a> {
        AttrShortformEntries { rest: self.entries, left: self.header.count, geometry: self.geometry }
    }

    /// What a checker asks beyond the walk: no bytes left over.
    pub fn audit(&self) -> Result<(), Damage> {
        let mut entries = self.entries();
        for entry in &mut entries {
            entry?;
        }
        let leftover = entries.rest.len();
        ensure!(leftover == 0, NAME, "totsize", "the end of the last", format_args!("{leftover} bytes more"));
        Ok(())
    }
}

/// Walks short-form attributes in the order of the disk.
#[derive(Clone, Debug)]
pub struct AttrShortformEntries<'a> {
    rest: &'a [u8],
    left: u8,
    geometry: &'a Geometry,
}

impl<'a> AttrShortformEntries<'a> {
    /// Bytes behind those that were walked.
    pub(super) fn left_over(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let header = AttrShortformEntry::view(self.rest)?;
        let rest = self.rest.get(AttrShortformEntry::SIZE..)?;
        let (name, rest) = rest.split_at_checked(header.namelen.into())?;
        let (value, rest) = rest.split_at_checked(header.valuelen.into())?;
        self.rest = rest;
        Some((header.flags, name, value))
    }
}

impl<'a> Iterator for AttrShortformEntries<'a> {
    type Item = Result<Attr<'a>, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let Some((bits, name, value)) = self.take() else {
            self.left = 0;
            let found = format_args!("{} bytes at its end", self.rest.len()).to_string();
            return Some(Err(Damage::new(NAME, "count", "as many attributes as fit into the size", found)));
        };
        if bits & !flags::NAMESPACES != 0 {
            let found = format_args!("{bits:#x}").to_string();
            return Some(Err(Damage::new(NAME, "flags", "a namespace and nothing else", found)));
        }
        Some(verify_namespace(NAME, bits).and_then(|namespace| {
            let attr = Attr { namespace, incomplete: false, name, value: AttrValue::Inline(value) };
            attr.verify(NAME, self.geometry).map(|()| attr)
        }))
    }
}
