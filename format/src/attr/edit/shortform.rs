//! Attributes within the inode: few bytes, which are put together anew for each change.

use zerocopy::IntoBytes;

use crate::attr::shortform::{AttrShortform, AttrShortformEntry, AttrShortformHeader};
use crate::attr::{Attr, Value};
use crate::damage::Damage;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16};

/// Most bytes of a name or of a value: their lengths are told in a byte.
pub const MOST: usize = 255;
/// Most attributes: their number is told in a byte.
pub const MOST_ATTRIBUTES: usize = 255;

/// Bytes that attributes with names and values of these lengths take, header included; `None` where they cannot lie in
/// an inode, however large.
pub fn size(attributes: impl IntoIterator<Item = (usize, usize)>) -> Option<usize> {
    let mut bytes = AttrShortformHeader::SIZE;
    for (count, (name, value)) in attributes.into_iter().enumerate() {
        if name > MOST || value > MOST || count == MOST_ATTRIBUTES {
            return None;
        }
        bytes += AttrShortformEntry::SIZE + name + value;
    }
    u16::try_from(bytes).ok().map(usize::from)
}

/// No attributes.
pub fn init() -> Vec<u8> {
    AttrShortformHeader { totsize: U16::new(AttrShortformHeader::SIZE as u16), count: 0, padding: 0 }
        .as_bytes()
        .to_vec()
}

/// The bytes of an attribute in the inode; `None` for one whose value lies elsewhere, or that is too long.
fn entry(attr: &Attr<'_>) -> Option<Vec<u8>> {
    let Value::Inline(value) = attr.value else { return None };
    let head = AttrShortformEntry {
        namelen: u8::try_from(attr.name.len()).ok()?,
        valuelen: u8::try_from(value.len()).ok()?,
        flags: attr.namespace.bits(),
    };
    Some([head.as_bytes(), attr.name, value].concat())
}

/// Attributes one behind the other. `None` where one does not belong into an inode.
pub fn build<'a>(attributes: impl IntoIterator<Item = Attr<'a>>) -> Option<Vec<u8>> {
    let mut bytes = init();
    let mut count = 0u8;
    for attr in attributes {
        bytes.extend(entry(&attr)?);
        count = count.checked_add(1)?;
    }
    let totsize = U16::new(u16::try_from(bytes.len()).ok()?);
    let head = AttrShortformHeader { totsize, count, padding: 0 };
    bytes.get_mut(..AttrShortformHeader::SIZE)?.copy_from_slice(head.as_bytes());
    Some(bytes)
}

/// All attributes, in the order of the disk.
pub fn attributes<'a>(bytes: &'a [u8], geometry: &'a Geometry) -> Result<Vec<Attr<'a>>, Damage> {
    AttrShortform::verify(bytes, geometry)?.entries().collect()
}
