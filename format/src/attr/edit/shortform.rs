//! Changes of shortform attributes. Replacing a value of equal length and appending an attribute are done in place;
//! everything else rebuilds the fork.

use zerocopy::IntoBytes;

use crate::attr::shortform::{AttrShortform, AttrShortformEntry, AttrShortformHeader};
use crate::attr::{Attr, AttrValue};
use crate::damage::Damage;
use crate::geometry::Geometry;
use crate::ondisk::{OnDisk, U16};

/// Maximum length of a name or a value, stored in one byte.
pub const MOST: usize = 255;
/// Maximum number of attributes, stored in one byte.
pub const MOST_ATTRIBUTES: usize = 255;

/// Total size of attributes with these name and value lengths, including the header; `None` if they never fit into an
/// inode.
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

/// An empty attribute list.
pub const EMPTY: [u8; AttrShortformHeader::SIZE] = [0, AttrShortformHeader::SIZE as u8, 0, 0];

/// Appends an attribute; returns `None`, and appends nothing, if it is remote or too long.
fn push(attr: &Attr<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    let AttrValue::Inline(value) = attr.value else { return None };
    bytes.extend_from_slice(entry(attr, value)?.as_bytes());
    bytes.extend_from_slice(attr.name);
    bytes.extend_from_slice(value);
    Some(())
}

/// The start of an attribute; `None` if it is too long.
fn entry(attr: &Attr<'_>, value: &[u8]) -> Option<AttrShortformEntry> {
    Some(AttrShortformEntry {
        namelen: u8::try_from(attr.name.len()).ok()?,
        valuelen: u8::try_from(value.len()).ok()?,
        flags: attr.namespace.bits(),
    })
}

/// Builds a shortform attribute fork; `None` if an attribute is not possible in shortform.
pub fn build<'a>(attributes: impl IntoIterator<Item = Attr<'a>>) -> Option<Vec<u8>> {
    let mut all = attributes.into_iter().map(Ok);
    put_together(&mut all, MOST).ok().flatten()
}

fn put_together<'a>(
    attributes: &mut dyn Iterator<Item = Result<Attr<'a>, Damage>>,
    about: usize,
) -> Result<Option<Vec<u8>>, Damage> {
    let mut bytes = Vec::with_capacity(about);
    bytes.extend_from_slice(&EMPTY);
    let mut count = 0u8;
    for attr in attributes {
        let Some(more) = count.checked_add(1) else { return Ok(None) };
        if push(&attr?, &mut bytes).is_none() {
            return Ok(None);
        }
        count = more;
    }
    let Ok(totsize) = u16::try_from(bytes.len()) else { return Ok(None) };
    let head = AttrShortformHeader { totsize: U16::new(totsize), count, padding: 0 };
    if let Some(place) = bytes.get_mut(..AttrShortformHeader::SIZE) {
        place.copy_from_slice(head.as_bytes());
    }
    Ok(Some(bytes))
}

/// Rebuilds the fork without the attributes for which `leaves` returns true, and with `new` appended. `None` if the
/// result is not possible in shortform.
///
/// # Errors
/// Damage of the fork.
pub fn exchange(
    bytes: &[u8],
    geometry: &Geometry,
    leaves: impl Fn(&Attr<'_>) -> bool,
    new: Option<Attr<'_>>,
) -> Result<Option<Vec<u8>>, Damage> {
    let about = bytes.len() + new.map_or(0, |new| AttrShortformEntry::SIZE + new.name.len() + MOST);
    let stay = AttrShortform::verify(bytes, geometry)?.entries();
    let stay = stay.filter(|attr| attr.as_ref().map_or(true, |attr| !leaves(attr)));
    put_together(&mut stay.chain(new.map(Ok)), about)
}

/// Sets an attribute in place in the attribute fork `area`, if nothing has to move: `is` selects an attribute with a
/// value of equal length, or none and there is space after the last. Returns `false`, and changes nothing, otherwise.
///
/// # Errors
/// Damage of the fork.
pub fn set(
    area: &mut [u8],
    geometry: &Geometry,
    is: impl Fn(&Attr<'_>) -> bool,
    new: &Attr<'_>,
) -> Result<bool, Damage> {
    let AttrValue::Inline(value) = new.value else { return Ok(false) };
    let all = AttrShortform::verify(area, geometry)?;
    let (count, end) = (all.header.count, usize::from(all.header.totsize.get()));
    let (mut entries, mut over) = (all.entries(), None);
    while let Some(attr) = entries.next().transpose()? {
        if is(&attr) {
            if over.is_some() || attr.value.length() != value.len() {
                return Ok(false);
            }
            let behind = end - entries.left_over();
            over = Some(behind - value.len()..behind);
        }
    }
    let is_whole = entries.left_over() == 0;
    Ok(match over {
        Some(range) => area.get_mut(range).map(|place| place.copy_from_slice(value)).is_some(),
        None => is_whole && add(area, (count, end), new, value).is_some(),
    })
}

/// Appends an attribute to `count` others, which end at `end`. Returns `None`, and changes nothing, if there is no
/// space.
fn add(area: &mut [u8], (count, end): (u8, usize), new: &Attr<'_>, value: &[u8]) -> Option<()> {
    let head = entry(new, value)?;
    let count = count.checked_add(1)?;
    let (name_at, value_at) =
        (end + AttrShortformEntry::SIZE, end + AttrShortformEntry::SIZE + new.name.len());
    let totsize = U16::new(u16::try_from(value_at + value.len()).ok()?);
    area.get_mut(value_at..value_at + value.len())?.copy_from_slice(value);
    area.get_mut(name_at..value_at)?.copy_from_slice(new.name);
    area.get_mut(end..name_at)?.copy_from_slice(head.as_bytes());
    let header = AttrShortformHeader { totsize, count, padding: 0 };
    area.get_mut(..AttrShortformHeader::SIZE)?.copy_from_slice(header.as_bytes());
    Some(())
}

/// The first attribute for which `is` returns true.
///
/// # Errors
/// Damage found before it.
pub fn find<'a>(
    bytes: &'a [u8],
    geometry: &'a Geometry,
    is: impl Fn(&Attr<'_>) -> bool,
) -> Result<Option<Attr<'a>>, Damage> {
    let mut entries = AttrShortform::verify(bytes, geometry)?.entries();
    entries.find(|attr| attr.as_ref().map_or(true, &is)).transpose()
}

/// All attributes in disk order.
pub fn attributes<'a>(bytes: &'a [u8], geometry: &'a Geometry) -> Result<Vec<Attr<'a>>, Damage> {
    AttrShortform::verify(bytes, geometry)?.entries().collect()
}
