//! Writes files of its own, with the number of the write in each sector.

use std::cell::Cell;
use std::sync::Arc;

use crashsim::stamped::{SECTOR, sectors};
use model::Rng;
use volume::File;

use super::{CallResult, RoundState, TrackedFile, pause};

/// Number of files of one actor; the last is only appended to.
pub const FILES: usize = 4;

/// One file, open.
pub(super) struct FileWorker<'s> {
    state: &'s RoundState,
    pub(super) file: &'s TrackedFile,
    pub(super) open: File<'s>,
    /// Maximum size of a file in sectors.
    longest: u64,
    /// A call failed, and the contents could not be read afterwards.
    pub(super) lost: Cell<bool>,
}

/// Number of attempts to read a file from a failing device.
const READS: u32 = 20;

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(
    state: &RoundState,
    files: &[Arc<TrackedFile>],
    mut rng: Rng,
    steps: usize,
) -> Result<(), String> {
    let longest = [600, 600, 8192][rng.index(3)];
    let open = |file| FileWorker::open(state, file, longest);
    let files: Vec<FileWorker<'_>> = files.iter().map(|file| open(file)).collect::<Result<_, _>>()?;
    let scattered = rng.one_in(3);
    for step in 0..steps {
        if state.is_over() || files.iter().any(|file| file.lost.get()) {
            return Ok(());
        }
        let n = rng.index(files.len());
        let in_step = |message: String| format!("step {step}, file {n}: {message}");
        let shares = n > 0 && n + 1 < files.len();
        let source = if shares { rng.index(n) } else { n };
        let choice = rng.below(20);
        match choice {
            0 | 1 => files[n].sync().map_err(in_step)?,
            2 => sync_all(state, &files).map_err(in_step)?,
            3 => files[n].compare().map_err(in_step)?,
            4 if shares => {
                let (before, from) = files.split_at(n);
                from[0].share(&before[source], &mut rng).map_err(in_step)?;
            }
            _ if n + 1 == files.len() => files[n].append(&mut rng).map_err(in_step)?,
            _ if scattered => files[n].scatter(&mut rng).map_err(in_step)?,
            _ => files[n].change(choice, &mut rng).map_err(in_step)?,
        }
        pause(&mut rng);
    }
    files.iter().try_for_each(|file| file.compare().map_err(|message| format!("at the end: {message}")))
}

/// Syncs the volume.
fn sync_all(state: &RoundState, files: &[FileWorker<'_>]) -> Result<(), String> {
    let lengths = state.expected.lengths();
    if state.require("sync", state.volume().sync())? {
        files.iter().for_each(|file| file.file.known().sync());
        state.expected.synced(&lengths);
    }
    Ok(())
}

impl<'s> FileWorker<'s> {
    pub(super) fn open(state: &'s RoundState, file: &'s TrackedFile, longest: u64) -> Result<Self, String> {
        let open = state.volume().open_file(file.id).map_err(|error| format!("opening a file: {error}"))?;
        Ok(Self { state, file, open, longest, lost: Cell::new(false) })
    }

    pub(super) fn sync(&self) -> Result<(), String> {
        if self.state.require("fsync", self.open.sync_all())? {
            self.file.known().sync();
        }
        Ok(())
    }

    pub(super) fn size(&self) -> u64 {
        self.file.known().size.last()
    }

    fn range(&self, rng: &mut Rng) -> (u64, u64) {
        let sector = rng.below(self.size() + 20).min(self.longest - 1);
        let max = [3, 20, 200, 600][rng.index(4)];
        (sector, 1 + rng.below(max).min(self.longest - sector - 1))
    }

    /// Writes sectors. Their values are recorded before they can reach the device.
    pub(super) fn write(&self, sector: u64, count: u64) -> Result<CallResult, String> {
        let values: Vec<u64> = self.state.fresh(count).collect();
        {
            let mut known = self.file.known();
            (sector..).zip(&values).for_each(|(sector, value)| known.set(sector, *value));
            known.grow(sector + count);
        }
        let bytes = sectors(values.into_iter());
        let mut done = 0;
        while done < bytes.len() {
            let wrote = self.open.write_at(&bytes[done..], sector * SECTOR + done as u64);
            let (result, wrote) = self.state.classify("write", wrote)?;
            match wrote {
                Some(wrote) => done += wrote,
                None => return self.adopt(result, sector, count).map(|()| result),
            }
        }
        Ok(CallResult::Done)
    }

    fn append(&self, rng: &mut Rng) -> Result<(), String> {
        let (size, count) = (self.size(), rng.below(40) + 1);
        if size > self.longest {
            return Ok(());
        }
        self.write(size, count).map(drop)
    }

    /// Writes single blocks at random offsets: each adds a record to the extent map.
    fn scatter(&self, rng: &mut Rng) -> Result<(), String> {
        let block = self.state.block;
        for _ in 0..1 + rng.below(30) {
            let sector = rng.below((self.longest / block).max(1)) * block;
            self.write(sector, block)?;
        }
        Ok(())
    }

    fn change(&self, choice: u64, rng: &mut Rng) -> Result<(), String> {
        let (sector, count) = self.range(rng);
        match choice {
            5 | 6 => self.truncate(sector).map(drop),
            7 => self.punch(sector, count).map(drop),
            8 => {
                self.file.known().grow(sector + count);
                let call = self.open.allocate(sector * SECTOR, count * SECTOR, false);
                let result = self.state.classify("allocate", call)?.0;
                self.adopt(result, sector, count)
            }
            9 => {
                let call = self.open.unshare_range(sector * SECTOR, count * SECTOR, true);
                let result = self.state.classify("unshare", call)?.0;
                self.adopt(result, sector, count)
            }
            _ => self.write(sector, count).map(drop),
        }
    }

    /// Changes the size of the file to `new_size` sectors.
    pub(super) fn truncate(&self, new_size: u64) -> Result<CallResult, String> {
        let size = self.size();
        {
            let mut known = self.file.known();
            (new_size..size).for_each(|cut| known.set(cut, 0));
            known.size.set(new_size);
        }
        let result = self.state.classify("truncate", self.open.set_len(new_size * SECTOR))?.0;
        self.adopt(result, new_size.min(size), new_size.abs_diff(size)).map(|()| result)
    }

    /// Punches a hole.
    pub(super) fn punch(&self, sector: u64, count: u64) -> Result<CallResult, String> {
        {
            let mut known = self.file.known();
            let end = (sector + count).min(known.size.last());
            (sector..end).for_each(|punched| known.set(punched, 0));
        }
        let result = self.state.classify("punch", self.open.punch_hole(sector * SECTOR, count * SECTOR))?.0;
        self.adopt(result, sector, count).map(|()| result)
    }

    fn share(&self, from: &Self, rng: &mut Rng) -> Result<(), String> {
        let block = self.state.block;
        let source = from.file.known().clone();
        let size = source.size.last() / block * block;
        let [from_sector, to_sector] =
            [rng.below(size + 1), rng.below(self.longest / 2)].map(|sector| sector / block * block);
        if !self.state.volume().geometry().features.reflink() || from_sector >= size {
            return Ok(());
        }
        let count = size - from_sector;
        {
            let mut known = self.file.known();
            (0..count).for_each(|n| known.set(to_sector + n, source.get(from_sector + n)));
            known.grow(to_sector + count);
        }
        let bytes = |sectors: u64| sectors * SECTOR;
        let call = self.open.clone_range(&from.open, bytes(from_sector), bytes(to_sector), bytes(count));
        let result = self.state.classify("clone", call)?.0;
        self.adopt(result, to_sector, count)
    }

    /// A call that was refused or failed may have done a part of its work: records the contents that the file has now.
    fn adopt(&self, result: CallResult, sector: u64, count: u64) -> Result<(), String> {
        if result == CallResult::Done {
            return Ok(());
        }
        let read = || self.read(sector * SECTOR, count * SECTOR).transpose();
        let Some(bytes) = (0..READS).find_map(|_| read()).transpose()? else {
            // The contents are unknown, so the file is not checked any more.
            self.lost.set(true);
            return Ok(());
        };
        let mut known = self.file.known();
        known.size.set(self.open.len() / SECTOR);
        for n in 0..count {
            let start = (n * SECTOR) as usize;
            let found = bytes.get(start..start + 8).map_or(0, number);
            known.set(sector + n, found);
        }
        Ok(())
    }

    /// Reads bytes; `None` if the device failed.
    fn read(&self, offset: u64, count: u64) -> Result<Option<Vec<u8>>, String> {
        let mut bytes = vec![0; self.open.len().saturating_sub(offset).min(count) as usize];
        let read = self.open.read_at(&mut bytes, offset);
        let (result, read) = self.state.classify("read", read)?;
        match read {
            Some(read) if read == bytes.len() => Ok(Some(bytes)),
            Some(read) => Err(format!("{read} of {} bytes can be read", bytes.len())),
            None if result == CallResult::Refused => Err("a read was refused".into()),
            None => Ok(None),
        }
    }

    /// Compares the file with its expected values.
    pub(super) fn compare(&self) -> Result<(), String> {
        let Some(bytes) = self.read(0, u64::MAX)? else { return Ok(()) };
        let known = self.file.known();
        let size = known.size.last() * SECTOR;
        // After a failure, a part may be missing.
        let fails = self.state.fails;
        if bytes.len() as u64 != size && !fails {
            return Err(format!("it has {} bytes, expected {size}", bytes.len()));
        }
        for (index, sector) in (0u64..).zip(bytes.chunks(SECTOR as usize)) {
            let (found, expected) = (number(sector), known.get(index));
            let is_allowed = known.sectors.get(&index).is_some_and(|versions| versions.allows(found));
            if found != expected && !(fails && is_allowed) {
                return Err(format!("sector {index} has {found}, expected {expected}"));
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
