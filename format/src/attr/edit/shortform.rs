//! Attributes within the inode: few bytes, of which mostly one value changes, or one attribute is added. For all else
//! they are put together anew.

use zerocopy::IntoBytes;

use crate::attr::shortform::{AttrShortform, AttrShortformEntry, AttrShortformHeader};
use crate::attr::{Attr, AttrValue};
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
pub const EMPTY: [u8; AttrShortformHeader::SIZE] = [0, AttrShortformHeader::SIZE as u8, 0, 0];

/// Adds the bytes of an attribute; `None`, and nothing added, for one whose value lies elsewhere, or that is too long.
fn push(attr: &Attr<'_>, bytes: &mut Vec<u8>) -> Option<()> {
    let AttrValue::Inline(value) = attr.value else { return None };
    bytes.extend_from_slice(entry(attr, value)?.as_bytes());
    bytes.extend_from_slice(attr.name);
    bytes.extend_from_slice(value);
    Some(())
}

/// What an attribute begins with; `None` for one that is too long.
fn entry(attr: &Attr<'_>, value: &[u8]) -> Option<AttrShortformEntry> {
    Some(AttrShortformEntry {
        namelen: u8::try_from(attr.name.len()).ok()?,
        valuelen: u8::try_from(value.len()).ok()?,
        flags: attr.namespace.bits(),
    })
}

/// Attributes one behind the other. `None` where one does not belong into an inode.
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

/// The same attributes without those that `leaves` chooses, and with `new` as the last. `None` where that does not
/// belong into an inode.
///
/// # Errors
/// Damage.
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

/// Sets an attribute in the `area` that the attribute fork has in the inode, where nothing has to move for that: its
/// value is as long as that of the one that `is` chooses, or none is chosen and there is room behind the last. `false`,
/// with nothing changed, where it is not so.
///
/// # Errors
/// Damage.
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

/// Adds an attribute behind `count` others, which end at `end`. `None`, with nothing changed, where there is no room.
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

/// The first attribute that `is` chooses.
///
/// # Errors
/// Damage before it.
pub fn find<'a>(
    bytes: &'a [u8],
    geometry: &'a Geometry,
    is: impl Fn(&Attr<'_>) -> bool,
) -> Result<Option<Attr<'a>>, Damage> {
    let mut entries = AttrShortform::verify(bytes, geometry)?.entries();
    entries.find(|attr| attr.as_ref().map_or(true, &is)).transpose()
}

/// All attributes, in the order of the disk.
pub fn attributes<'a>(bytes: &'a [u8], geometry: &'a Geometry) -> Result<Vec<Attr<'a>>, Damage> {
    AttrShortform::verify(bytes, geometry)?.entries().collect()
}
