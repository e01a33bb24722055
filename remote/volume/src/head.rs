//! The head: the only object of a volume that is replaced. `docs/remote-format.md` describes its bytes.
//!
//! # Invariants
//! - Each version has another `change`, so that no two have the same bytes, and a writer recognizes its own.

use crate::codec::{Decoder, Encoder, crc};
use crate::error::Damage;
use crate::names::Kind;

/// Bytes of a head at most.
pub const HEAD_BYTES: u64 = 4 << 20;
/// Unreferenced objects in a head at most; others wait for a later one.
pub const RETIRED: usize = 8192;
/// Parents of a volume at most: an open opens the store of each.
pub const PARENTS: usize = 256;
/// Largest size of a volume: the index of a segment has space for a hole of that size.
pub const SIZE_MAX: u64 = 1 << 52;
/// Epochs and positions stay below: so none that is read can overflow when it is counted on.
const NUMBER_MAX: u64 = 1 << 62;
/// Bytes of an item in the list of unreferenced objects.
const RETIRED_BYTES: usize = 25;

const MAGIC: [u8; 8] = *b"XBHEAD\0\x01";
const WHAT: &str = "head";

/// Where the directory of a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Root {
    /// The volume that it belongs to: 0 for this one, else a parent.
    pub origin: u16,
    /// The epoch of its writer.
    pub epoch: u64,
    /// Number of the object.
    pub number: u64,
    /// Offset in the object.
    pub offset: u32,
    /// Stored length.
    pub stored: u32,
    /// Length after decompression.
    pub length: u32,
    /// Checksum of the stored bytes.
    pub crc: u32,
}

/// A map, and what of the log it contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Epoch of the first segment that is not contained: the one behind the writer's, if it has closed the volume.
    pub epoch: u64,
    /// Position of this segment.
    pub seq: u64,
    /// The map; `None` if the volume is empty.
    pub root: Option<Root>,
}

/// A name for the state of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// When it was made, in seconds since 1970 by the clock of the maker.
    pub made: u64,
    /// Size of the volume in bytes.
    pub size: u64,
    /// The map.
    pub root: Option<Root>,
}

/// A volume that shares objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its URL.
    pub url: String,
    /// Its UUID.
    pub uuid: [u8; 16],
}

/// An object that no checkpoint or snapshot refers to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Its kind.
    pub kind: Kind,
    /// Its epoch.
    pub epoch: u64,
    /// Number in the epoch.
    pub number: u64,
    /// Since when, in seconds by the store's clock; 0 if the head that says so is not published yet.
    pub since: u64,
}

/// The head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Identifies the volume.
    pub uuid: [u8; 16],
    /// Size in bytes.
    pub size: u64,
    /// Logical sector size.
    pub sector: u32,
    /// Epoch of the last writer.
    pub epoch: u64,
    /// Identifies the last writer.
    pub nonce: u128,
    /// Identifies this version of the head.
    pub change: u128,
    /// The writer that has it open, as it names itself.
    pub writer: Option<String>,
    /// The last checkpoint.
    pub checkpoint: Checkpoint,
    /// Snapshots.
    pub snapshots: Vec<Snapshot>,
    /// States that clones use; named by the clones' URLs.
    pub pins: Vec<Snapshot>,
    /// Volumes whose objects this one uses; origin 1 is the first.
    pub parents: Vec<Parent>,
    /// Objects to be deleted.
    pub retired: Vec<Retired>,
}

fn encode_root(encoder: &mut Encoder, root: Option<Root>) {
    encoder.u8(u8::from(root.is_some()));
    if let Some(Root { origin, epoch, number, offset, stored, length, crc }) = root {
        encoder.u16(origin);
        encoder.u64(epoch);
        encoder.u64(number);
        [offset, stored, length, crc].into_iter().for_each(|field| encoder.u32(field));
    }
}

fn decode_root(decoder: &mut Decoder<'_>) -> Result<Option<Root>, Damage> {
    if decoder.u8()? == 0 {
        return Ok(None);
    }
    Ok(Some(Root {
        origin: decoder.u16()?,
        epoch: decoder.u64()?,
        number: decoder.u64()?,
        offset: decoder.u32()?,
        stored: decoder.u32()?,
        length: decoder.u32()?,
        crc: decoder.u32()?,
    }))
}

fn encode_snapshots(encoder: &mut Encoder, snapshots: &[Snapshot]) {
    encoder.u32(snapshots.len() as u32);
    for Snapshot { name, made, size, root } in snapshots {
        encoder.text(name);
        encoder.u64(*made);
        encoder.u64(*size);
        encode_root(encoder, *root);
    }
}

fn decode_snapshots(decoder: &mut Decoder<'_>) -> Result<Vec<Snapshot>, Damage> {
    let count = decoder.count(19)?;
    let decode = |_| {
        let (name, made, size) = (decoder.text()?, decoder.u64()?, decoder.u64()?);
        Ok(Snapshot { name, made, size, root: decode_root(decoder)? })
    };
    (0..count).map(decode).collect()
}

impl Head {
    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.raw(&MAGIC);
        encoder.u32(0);
        encoder.u32(1);
        encoder.raw(&self.uuid);
        encoder.u64(self.size);
        encoder.u32(self.sector);
        encoder.u64(self.epoch);
        encoder.raw(&self.nonce.to_le_bytes());
        encoder.raw(&self.change.to_le_bytes());
        encoder.u8(u8::from(self.writer.is_some()));
        encoder.text(self.writer.as_deref().unwrap_or_default());
        encoder.u64(self.checkpoint.epoch);
        encoder.u64(self.checkpoint.seq);
        encode_root(&mut encoder, self.checkpoint.root);
        encode_snapshots(&mut encoder, &self.snapshots);
        encode_snapshots(&mut encoder, &self.pins);
        encoder.u32(self.parents.len() as u32);
        for Parent { url, uuid } in &self.parents {
            encoder.text(url);
            encoder.raw(uuid);
        }
        encoder.u32(self.retired.len() as u32);
        for Retired { kind, epoch, number, since } in &self.retired {
            encoder.u8(u8::from(*kind == Kind::Map));
            [*epoch, *number, *since].into_iter().for_each(|field| encoder.u64(field));
        }
        let sum = crc(&[&encoder.bytes]);
        encoder.set_u32(MAGIC.len(), sum);
        encoder.bytes
    }

    /// Reads a stored head.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let damage = |reason| Damage { what: WHAT, reason };
        let mut decoder = Decoder::new(bytes, WHAT);
        if decoder.array()? != MAGIC {
            return Err(damage("wrong magic number"));
        }
        let sum = decoder.u32()?;
        let rest = bytes.get(MAGIC.len() + 4..).unwrap_or_default();
        if crc(&[&MAGIC, &[0; 4], rest]) != sum {
            return Err(damage("wrong checksum"));
        }
        if decoder.u32()? != 1 {
            return Err(damage("unknown version (a newer program wrote it)"));
        }
        let uuid = decoder.array()?;
        let (size, sector, epoch) = (decoder.u64()?, decoder.u32()?, decoder.u64()?);
        let nonce = u128::from_le_bytes(decoder.array()?);
        let change = u128::from_le_bytes(decoder.array()?);
        let is_open = decoder.u8()? != 0;
        let writer = Some(decoder.text()?).filter(|_| is_open);
        let (at_epoch, seq) = (decoder.u64()?, decoder.u64()?);
        let checkpoint = Checkpoint { epoch: at_epoch, seq, root: decode_root(&mut decoder)? };
        let snapshots = decode_snapshots(&mut decoder)?;
        let pins = decode_snapshots(&mut decoder)?;
        let count = decoder.count(18)?;
        let parent = |_| Ok(Parent { url: decoder.text()?, uuid: decoder.array()? });
        let parents: Vec<Parent> = (0..count).map(parent).collect::<Result<_, Damage>>()?;
        let count = decoder.count(RETIRED_BYTES)?;
        let retired = |_| {
            let kind = if decoder.u8()? == 0 { Kind::Segment } else { Kind::Map };
            let (epoch, number, since) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
            Ok(Retired { kind, epoch, number, since })
        };
        let retired = (0..count).map(retired).collect::<Result<_, Damage>>()?;
        decoder.end()?;
        if !matches!(sector, 512 | 4096) || size > SIZE_MAX || size == 0 {
            return Err(damage("impossible size or sector size"));
        }
        if epoch >= NUMBER_MAX || checkpoint.epoch > epoch + 1 || checkpoint.seq >= NUMBER_MAX {
            return Err(damage("impossible epoch or position"));
        }
        if parents.len() > PARENTS {
            return Err(damage("too many parents"));
        }
        Ok(Self {
            uuid,
            size,
            sector,
            epoch,
            nonce,
            change,
            writer,
            checkpoint,
            snapshots,
            pins,
            parents,
            retired,
        })
    }

    /// Whether a writer can add its name and fill the list of unreferenced objects, and the head is still not too
    /// large.
    pub fn leaves_space(&self) -> bool {
        let retired = RETIRED.saturating_sub(self.retired.len()) * RETIRED_BYTES;
        (self.encode().len() + retired + usize::from(u16::MAX)) as u64 <= HEAD_BYTES
    }

    /// The roots of all states that must be kept, except for the checkpoint.
    pub fn kept_roots(&self) -> impl Iterator<Item = Root> {
        self.snapshots.iter().chain(&self.pins).filter_map(|snapshot| snapshot.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_stored_and_damage_is_an_error() {
        let root = Root { origin: 1, epoch: 2, number: 3, offset: 4, stored: 5, length: 6, crc: 7 };
        let snapshot = |name: &str| Snapshot { name: name.into(), made: 1, size: 4096, root: Some(root) };
        let head = Head {
            uuid: [7; 16],
            size: 1 << 40,
            sector: 4096,
            epoch: 9,
            nonce: 1 << 100,
            change: 3,
            writer: Some("host, pid 3".into()),
            checkpoint: Checkpoint { epoch: 8, seq: 5, root: None },
            snapshots: vec![snapshot("monday")],
            pins: vec![snapshot("s3://bucket/clone")],
            parents: vec![Parent { url: "s3://bucket/parent".into(), uuid: [1; 16] }],
            retired: vec![Retired { kind: Kind::Map, epoch: 1, number: 2, since: 3 }],
        };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes).unwrap(), head);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Head::decode(&damaged).is_err());
            assert!(Head::decode(&bytes[..at]).is_err());
        }
        let at = |epoch, seq| Checkpoint { epoch, seq, root: None };
        for wrong in [
            Head { size: 0, ..head.clone() },
            Head { sector: 7, ..head.clone() },
            Head { epoch: u64::MAX, ..head.clone() },
            Head { checkpoint: at(11, 0), ..head.clone() },
            Head { checkpoint: at(9, u64::MAX), ..head.clone() },
            Head { parents: vec![head.parents[0].clone(); PARENTS + 1], ..head.clone() },
        ] {
            assert!(Head::decode(&wrong.encode()).is_err());
        }
    }
}
