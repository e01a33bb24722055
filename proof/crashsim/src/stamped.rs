//! Contents of files as sectors of which each holds one number that is written nowhere else: so each sector that is
//! found tells which write it is of.

use std::collections::BTreeMap;

use base::Ino;
use volume::Volume;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;

/// All that a place has held, in order; a power cut may leave any of it from `stable` on.
#[derive(Clone, Debug)]
pub struct Versions {
    values: Vec<u64>,
    stable: usize,
}

impl Default for Versions {
    fn default() -> Self {
        Self { values: vec![0], stable: 0 }
    }
}

impl Versions {
    /// It holds this now, or will if the write that begins succeeds.
    pub fn set(&mut self, value: u64) {
        self.values.push(value);
    }

    /// What it holds.
    pub fn last(&self) -> u64 {
        self.values.last().copied().unwrap_or(0)
    }

    /// What it holds is stable.
    pub fn sync(&mut self) {
        self.stable = self.values.len() - 1;
    }

    /// The oldest value that a power cut may leave.
    pub fn floor(&self) -> u64 {
        self.values[self.stable]
    }

    /// The same floor as another's; of none, no floor.
    pub fn floor_as(&mut self, other: Option<&Self>) {
        self.stable = other.map_or(0, |other| other.stable);
    }

    /// Whether a power cut may leave this.
    pub fn allows(&self, value: u64) -> bool {
        self.values[self.stable..].contains(&value)
    }

    /// The same for a size: a write that makes a file longer may reach the device in part.
    fn allows_size(&self, size: u64) -> bool {
        let grows = |pair: &[u64]| pair[0] < size && size < pair[1];
        self.allows(size) || self.values[self.stable..].windows(2).any(grows)
    }

    fn ever(&self, value: u64) -> bool {
        self.values.contains(&value)
    }
}

/// What a file may hold.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// In sectors.
    pub size: Versions,
    /// By their place.
    pub sectors: BTreeMap<u64, Versions>,
    /// It was only appended to: what is there is there up to its end.
    pub appended: bool,
    /// What the sectors hold that are not listed.
    pub stripes: Stripes,
}

/// A file whose blocks are holes and data in turn, but for one hole of 60.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stripes {
    /// In each sector of the data.
    pub value: u64,
    /// Sectors of a block.
    pub run: u64,
    /// In sectors.
    pub end: u64,
}

impl Stripes {
    /// Whether a block is a hole. With blocks of 1 KiB a leaf has room for 59 records, and keeps 30 when it is split:
    /// one for every fourth block. The other holes fill it but for one.
    pub fn is_hole(block: u64) -> bool {
        block.is_multiple_of(2) && block % 120 != 118
    }

    fn get(&self, at: u64) -> u64 {
        if at < self.end && !Self::is_hole(at / self.run) { self.value } else { 0 }
    }
}

impl Known {
    /// An empty file.
    pub fn new(appended: bool) -> Self {
        Self { appended, ..Self::default() }
    }

    /// A file that is stable and holds this.
    pub fn striped(stripes: Stripes) -> Self {
        let size = Versions { values: vec![stripes.end], stable: 0 };
        Self { size, stripes, ..Self::default() }
    }

    /// A sector is written.
    pub fn set(&mut self, at: u64, value: u64) {
        let before = self.stripes.get(at);
        self.sectors.entry(at).or_insert_with(|| Versions { values: vec![before], stable: 0 }).set(value);
    }

    /// What a sector holds.
    pub fn get(&self, at: u64) -> u64 {
        self.sectors.get(&at).map_or_else(|| self.stripes.get(at), Versions::last)
    }

    /// Something was written up to this sector.
    pub fn grow(&mut self, size: u64) {
        if size > self.size.last() {
            self.size.set(size);
        }
    }

    /// All that was done is stable.
    pub fn sync(&mut self) {
        self.size.sync();
        self.sectors.values_mut().for_each(Versions::sync);
    }

    /// The same floors as those of the file at an earlier moment; of none, no floors.
    pub fn floors_as(&mut self, earlier: Option<&Self>) {
        self.size.floor_as(earlier.map(|earlier| &earlier.size));
        for (at, versions) in &mut self.sectors {
            versions.floor_as(earlier.and_then(|earlier| earlier.sectors.get(at)));
        }
    }

    /// Compares with what is found after a power cut.
    fn compare(&self, bytes: &[u8]) -> Result<(), (String, Option<u64>)> {
        let size = bytes.len() as u64 / SECTOR;
        if !(bytes.len() as u64).is_multiple_of(SECTOR) || (!self.appended && !self.size.allows_size(size)) {
            return Err((format!("it has {} bytes, of sectors {:?}", bytes.len(), self.size), None));
        }
        if self.appended && size < self.size.floor() {
            return Err((format!("it has {size} sectors, and {} were synced", self.size.floor()), None));
        }
        for (at, sector) in (0u64..).zip(bytes.chunks(SECTOR as usize)) {
            let value = number(sector);
            let whole = sector.chunks(8).all(|word| word == value.to_le_bytes());
            let fits = match self.sectors.get(&at) {
                Some(versions) if self.appended => versions.last() == value,
                Some(versions) => versions.allows(value),
                None => value == self.stripes.get(at),
            };
            if !whole || !fits {
                let may = self.sectors.get(&at);
                let what =
                    format!("sector {at} of {size} holds {value} (whole: {whole}), and may hold {may:?}");
                return Err((what, Some(value)));
            }
        }
        Ok(())
    }
}

fn number(sector: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&sector[..8]);
    u64::from_le_bytes(bytes)
}

/// The bytes of sectors with these numbers.
pub fn sectors(values: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.size_hint().0 * SECTOR as usize);
    values
        .for_each(|value| bytes.extend_from_slice([value.to_le_bytes(); SECTOR as usize / 8].as_flattened()));
    bytes
}

/// Files and sectors that ever held a value.
fn owners(files: &[Known], value: u64) -> Vec<(usize, u64)> {
    let of = |(n, known): (usize, &Known)| {
        let held = known.sectors.iter().filter(|(_, versions)| versions.ever(value));
        held.map(|(at, _)| (n, *at)).collect::<Vec<_>>()
    };
    files.iter().enumerate().flat_map(of).collect()
}

/// Compares files of a volume, after a power cut or without, with what they may hold.
///
/// # Errors
/// The first difference, in words.
pub fn compare(volume: &Volume, files: &[Ino], allowed: &[Known]) -> Result<(), String> {
    let words = |error: volume::Error| error.to_string();
    for (n, (ino, known)) in files.iter().zip(allowed).enumerate() {
        let file = volume.open_file(*ino).map_err(words)?;
        let mut bytes = vec![0; file.len() as usize];
        let read = file.read_at(&mut bytes, 0).map_err(|error| format!("file {n} (inode {ino}): {error}"))?;
        if read < bytes.len() {
            return Err(format!("file {n} (inode {ino}): {read} of {} bytes can be read", bytes.len()));
        }
        known.compare(&bytes).map_err(|(what, value)| {
            let whose = value.map_or_else(Vec::new, |value| owners(allowed, value));
            format!("file {n} (inode {ino}): {what}; the number is of (file, sector) {whose:?}")
        })?;
    }
    Ok(())
}
