//! File contents in which every written sector is filled with a unique number, so that a sector read later identifies
//! the write that it came from.

use std::collections::BTreeMap;

use volume::{FileId, Volume};

/// Sector size in bytes.
pub const SECTOR: u64 = 512;

/// All values of a sector or a size, in order. A power cut may leave any of them from index `stable` on.
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
    /// Adds the value of a write that is about to start.
    pub fn set(&mut self, value: u64) {
        self.values.push(value);
    }

    /// Returns the current value.
    pub fn last(&self) -> u64 {
        self.values.last().copied().unwrap_or(0)
    }

    /// Marks the current value as durable.
    pub fn sync(&mut self) {
        self.stable = self.values.len() - 1;
    }

    /// Returns the oldest value that a power cut may leave.
    pub fn floor(&self) -> u64 {
        self.values[self.stable]
    }

    /// Takes over the oldest allowed value of `other`; without it, allows all values.
    pub fn set_floor(&mut self, other: Option<&Self>) {
        self.stable = other.map_or(0, |other| other.stable);
    }

    /// Returns true if a power cut may leave this value.
    pub fn allows(&self, value: u64) -> bool {
        self.values[self.stable..].contains(&value)
    }

    /// Returns true if a power cut may leave this size. A write that extends a file may reach the device in part.
    fn allows_size(&self, size: u64) -> bool {
        let grows = |pair: &[u64]| pair[0] < size && size < pair[1];
        self.allows(size) || self.values[self.stable..].windows(2).any(grows)
    }

    fn ever(&self, value: u64) -> bool {
        self.values.contains(&value)
    }
}

/// Expected contents of a file.
#[derive(Clone, Debug, Default)]
pub struct ExpectedFile {
    /// Size in sectors.
    pub size: Versions,
    /// Sectors by index.
    pub sectors: BTreeMap<u64, Versions>,
    /// The file was only appended to: it must be complete up to its end.
    pub appended: bool,
    /// Contents of the sectors that are not listed.
    pub stripes: Stripes,
}

/// A file whose blocks are alternately holes and data, except for one hole in 60.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stripes {
    /// Number in each data sector.
    pub value: u64,
    /// Block size in sectors.
    pub run: u64,
    /// Size in sectors.
    pub end: u64,
}

impl Stripes {
    /// Returns true if a block is a hole. With 1 KiB blocks a leaf holds 59 records, and keeps 30 when it is split: one
    /// for every fourth block. The other holes fill it except for one.
    pub fn is_hole(block: u64) -> bool {
        block.is_multiple_of(2) && block % 120 != 118
    }

    fn get(&self, at: u64) -> u64 {
        if at < self.end && !Self::is_hole(at / self.run) { self.value } else { 0 }
    }
}

impl ExpectedFile {
    /// Creates an empty file.
    pub fn new(appended: bool) -> Self {
        Self { appended, ..Self::default() }
    }

    /// Creates a file with these durable contents.
    pub fn striped(stripes: Stripes) -> Self {
        let size = Versions { values: vec![stripes.end], stable: 0 };
        Self { size, stripes, ..Self::default() }
    }

    /// Records a write of a sector.
    pub fn set(&mut self, at: u64, value: u64) {
        let before = self.stripes.get(at);
        self.sectors.entry(at).or_insert_with(|| Versions { values: vec![before], stable: 0 }).set(value);
    }

    /// Returns the number in a sector.
    pub fn get(&self, at: u64) -> u64 {
        self.sectors.get(&at).map_or_else(|| self.stripes.get(at), Versions::last)
    }

    /// Extends the file if it is shorter.
    pub fn grow(&mut self, size: u64) {
        if size > self.size.last() {
            self.size.set(size);
        }
    }

    /// Marks all contents as durable.
    pub fn sync(&mut self) {
        self.size.sync();
        self.sectors.values_mut().for_each(Versions::sync);
    }

    /// Takes over the oldest allowed values of an earlier state of the file; without one, allows all values.
    pub fn set_floors(&mut self, earlier: Option<&Self>) {
        self.size.set_floor(earlier.map(|earlier| &earlier.size));
        for (at, versions) in &mut self.sectors {
            versions.set_floor(earlier.and_then(|earlier| earlier.sectors.get(at)));
        }
    }

    /// Compares with the contents after a power cut. An error names the unexpected number, if any.
    fn compare(&self, bytes: &[u8]) -> Result<(), (String, Option<u64>)> {
        let size = bytes.len() as u64 / SECTOR;
        if !(bytes.len() as u64).is_multiple_of(SECTOR) || (!self.appended && !self.size.allows_size(size)) {
            return Err((format!("it has {} bytes; sizes in sectors: {:?}", bytes.len(), self.size), None));
        }
        if self.appended && size < self.size.floor() {
            return Err((format!("it has {size} sectors, but {} were synced", self.size.floor()), None));
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
                let allowed = self.sectors.get(&at);
                let what =
                    format!("sector {at} of {size} contains {value} (whole: {whole}), expected {allowed:?}");
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

/// Returns the bytes of sectors with these numbers.
pub fn sectors(values: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.size_hint().0 * SECTOR as usize);
    values
        .for_each(|value| bytes.extend_from_slice([value.to_le_bytes(); SECTOR as usize / 8].as_flattened()));
    bytes
}

/// Returns all files and sectors that ever contained a value.
fn owners(files: &[ExpectedFile], value: u64) -> Vec<(usize, u64)> {
    let of = |(n, expected): (usize, &ExpectedFile)| {
        let held = expected.sectors.iter().filter(|(_, versions)| versions.ever(value));
        held.map(|(at, _)| (n, *at)).collect::<Vec<_>>()
    };
    files.iter().enumerate().flat_map(of).collect()
}

/// Compares files of a volume with their expected contents.
///
/// # Errors
/// The first difference.
pub fn compare(volume: &Volume, files: &[FileId], allowed: &[ExpectedFile]) -> Result<(), String> {
    let message = |error: volume::Error| error.to_string();
    for (n, (file, expected)) in files.iter().zip(allowed).enumerate() {
        let ino = file.ino;
        let file = volume.open_file(*file).map_err(message)?;
        let mut bytes = vec![0; file.len() as usize];
        let read = file.read_at(&mut bytes, 0).map_err(|error| format!("file {n} (inode {ino}): {error}"))?;
        if read < bytes.len() {
            return Err(format!("file {n} (inode {ino}): {read} of {} bytes can be read", bytes.len()));
        }
        expected.compare(&bytes).map_err(|(what, value)| {
            let whose = value.map_or_else(Vec::new, |value| owners(allowed, value));
            format!("file {n} (inode {ino}): {what}; the number is of (file, sector) {whose:?}")
        })?;
    }
    Ok(())
}
