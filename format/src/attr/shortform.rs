//! Shortform attributes, packed in the inode.

use super::{Attr, AttrValue, flags, verify_namespace};
use crate::damage::Damage;
use crate::ensure;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16};

const NAME: &str = "short-form attributes";

crate::ondisk! {
    /// The header.
    pub struct AttrShortformHeader("short-form attributes", 4) {
        /// Total size in bytes, including this header.
        totsize: U16 = Uint,
        /// Number of attributes.
        count: u8 = Uint,
        /// Zero.
        padding: u8 = Padding,
    }

    /// The start of an attribute; name and value follow.
    pub struct AttrShortformEntry("short-form attribute", 3) {
        /// Length of the name in bytes.
        namelen: u8 = Uint,
        /// Length of the value in bytes.
        valuelen: u8 = Uint,
        /// Namespace.
        flags: u8 = Hex,
    }
}

/// Verified short-form attributes.
#[derive(Clone, Copy, Debug)]
pub struct AttrShortform<'a> {
    /// Size and number of attributes.
    pub header: &'a AttrShortformHeader,
    entries: &'a [u8],
    geometry: &'a Geometry,
}

impl<'a> AttrShortform<'a> {
    /// Verifies the header. `bytes` is the whole attribute fork area. Attributes are verified during iteration.
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

    /// Iterates over the attributes. A damaged name or flag yields an error and the iteration continues; a truncated
    /// attribute ends it.
    pub fn entries(&self) -> AttrShortformEntries<'a> {
        AttrShortformEntries { rest: self.entries, left: self.header.count, geometry: self.geometry }
    }

    /// Checks in addition to iteration: no trailing bytes.
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

/// Iterator over shortform attributes in disk order.
#[derive(Clone, Debug)]
pub struct AttrShortformEntries<'a> {
    rest: &'a [u8],
    left: u8,
    geometry: &'a Geometry,
}

impl<'a> AttrShortformEntries<'a> {
    /// Bytes not visited yet.
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
