//! Files of its own, whose sectors say which write they are of.

use std::cell::Cell;
use std::sync::Arc;

use crashsim::stamped::{SECTOR, sectors};
use model::Rng;
use volume::File;

use super::{KnownFile, Stage, Went, rest};

/// Files of one actor; the last is only appended to.
pub const FILES: usize = 4;

/// One file, open.
pub(super) struct Work<'s> {
    stage: &'s Stage,
    pub(super) file: &'s KnownFile,
    pub(super) open: File<'s>,
    /// Sectors of the longest file.
    longest: u64,
    /// A call failed, and so did reading what it had done.
    pub(super) lost: Cell<bool>,
}

/// Reads of a device that fails now and then, before a file is given up.
const READS: u32 = 20;

/// Works on some files.
///
/// # Errors
/// In words.
pub fn work(stage: &Stage, files: &[Arc<KnownFile>], mut rng: Rng, steps: usize) -> Result<(), String> {
    let longest = [600, 600, 8192][rng.index(3)];
    let open = |file| Work::open(stage, file, longest);
    let files: Vec<Work<'_>> = files.iter().map(|file| open(file)).collect::<Result<_, _>>()?;
    let scattered = rng.one_in(3);
    for step in 0..steps {
        if stage.is_over() || files.iter().any(|file| file.lost.get()) {
            return Ok(());
        }
        let n = rng.index(files.len());
        let at = |what: String| format!("step {step}, file {n}: {what}");
        let shares = n > 0 && n + 1 < files.len();
        let source = if shares { rng.index(n) } else { n };
        let what = rng.below(20);
        match what {
            0 | 1 => files[n].sync().map_err(at)?,
            2 => sync_all(stage, &files).map_err(at)?,
            3 => files[n].compare().map_err(at)?,
            4 if shares => {
                let (before, from) = files.split_at(n);
                from[0].share(&before[source], &mut rng).map_err(at)?;
            }
            _ if n + 1 == files.len() => files[n].append(&mut rng).map_err(at)?,
            _ if scattered => files[n].scatter(&mut rng).map_err(at)?,
            _ => files[n].change(what, &mut rng).map_err(at)?,
        }
        rest(&mut rng);
    }
    files.iter().try_for_each(|file| file.compare().map_err(|what| format!("at the end: {what}")))
}

/// Syncs the volume, and with it all files.
fn sync_all(stage: &Stage, files: &[Work<'_>]) -> Result<(), String> {
    let lengths = stage.seen.lengths();
    if stage.must("sync", stage.volume().sync())? {
        files.iter().for_each(|file| file.file.known().sync());
        stage.seen.synced(&lengths);
    }
    Ok(())
}

impl<'s> Work<'s> {
    pub(super) fn open(stage: &'s Stage, file: &'s KnownFile, longest: u64) -> Result<Self, String> {
        let open = stage.volume().open_file(file.ino).map_err(|error| format!("opening a file: {error}"))?;
        Ok(Self { stage, file, open, longest, lost: Cell::new(false) })
    }

    pub(super) fn sync(&self) -> Result<(), String> {
        if self.stage.must("fsync", self.open.sync_all())? {
            self.file.known().sync();
        }
        Ok(())
    }

    pub(super) fn size(&self) -> u64 {
        self.file.known().size.last()
    }

    fn range(&self, rng: &mut Rng) -> (u64, u64) {
        let at = rng.below(self.size() + 20).min(self.longest - 1);
        let most = [3, 20, 200, 600][rng.index(4)];
        (at, 1 + rng.below(most).min(self.longest - at - 1))
    }

    /// Writes sectors: what they will hold is known before anything can reach the device.
    pub(super) fn write(&self, at: u64, count: u64) -> Result<Went, String> {
        let values: Vec<u64> = self.stage.fresh(count).collect();
        {
            let mut known = self.file.known();
            (at..).zip(&values).for_each(|(at, value)| known.set(at, *value));
            known.grow(at + count);
        }
        let bytes = sectors(values.into_iter());
        let mut done = 0;
        while done < bytes.len() {
            let wrote = self.open.write_at(&bytes[done..], at * SECTOR + done as u64);
            let (went, wrote) = self.stage.judge("write", wrote)?;
            match wrote {
                Some(wrote) => done += wrote,
                None => return self.adopt(went, at, count).map(|()| went),
            }
        }
        Ok(Went::Well)
    }

    fn append(&self, rng: &mut Rng) -> Result<(), String> {
        let (size, count) = (self.size(), rng.below(40) + 1);
        if size > self.longest {
            return Ok(());
        }
        self.write(size, count).map(drop)
    }

    /// Single blocks at random places: each a record of its own in the extent map.
    fn scatter(&self, rng: &mut Rng) -> Result<(), String> {
        let block = self.stage.block;
        for _ in 0..1 + rng.below(30) {
            let at = rng.below((self.longest / block).max(1)) * block;
            self.write(at, block)?;
        }
        Ok(())
    }

    fn change(&self, what: u64, rng: &mut Rng) -> Result<(), String> {
        let (at, count) = self.range(rng);
        match what {
            5 | 6 => self.truncate(at).map(drop),
            7 => self.punch(at, count).map(drop),
            8 => {
                self.file.known().grow(at + count);
                let done = self.open.allocate(at * SECTOR, count * SECTOR, false);
                let went = self.stage.judge("allocate", done)?.0;
                self.adopt(went, at, count)
            }
            9 => {
                let done = self.open.unshare_range(at * SECTOR, count * SECTOR, true);
                let went = self.stage.judge("unshare", done)?.0;
                self.adopt(went, at, count)
            }
            _ => self.write(at, count).map(drop),
        }
    }

    /// Makes the file end at a sector.
    pub(super) fn truncate(&self, at: u64) -> Result<Went, String> {
        let size = self.size();
        {
            let mut known = self.file.known();
            (at..size).for_each(|cut| known.set(cut, 0));
            known.size.set(at);
        }
        let went = self.stage.judge("truncate", self.open.set_len(at * SECTOR))?.0;
        self.adopt(went, at.min(size), at.max(size) - at.min(size)).map(|()| went)
    }

    /// Makes sectors a hole.
    pub(super) fn punch(&self, at: u64, count: u64) -> Result<Went, String> {
        {
            let mut known = self.file.known();
            let end = (at + count).min(known.size.last());
            (at..end).for_each(|gone| known.set(gone, 0));
        }
        let went = self.stage.judge("punch", self.open.punch_hole(at * SECTOR, count * SECTOR))?.0;
        self.adopt(went, at, count).map(|()| went)
    }

    fn share(&self, from: &Self, rng: &mut Rng) -> Result<(), String> {
        let block = self.stage.block;
        let source = from.file.known().clone();
        let size = source.size.last() / block * block;
        let [from_at, to_at] =
            [rng.below(size + 1), rng.below(self.longest / 2)].map(|at| at / block * block);
        if !self.stage.volume().geometry().features.reflink() || from_at >= size {
            return Ok(());
        }
        let count = size - from_at;
        {
            let mut known = self.file.known();
            (0..count).for_each(|n| known.set(to_at + n, source.get(from_at + n)));
            known.grow(to_at + count);
        }
        let bytes = |sectors: u64| sectors * SECTOR;
        let done = self.open.clone_range(&from.open, bytes(from_at), bytes(to_at), bytes(count));
        let went = self.stage.judge("clone", done)?.0;
        self.adopt(went, to_at, count)
    }

    /// A call that was refused, or met an error of the device, may have done a part of its work: what is there is what
    /// the file holds from now on.
    fn adopt(&self, went: Went, at: u64, count: u64) -> Result<(), String> {
        if went == Went::Well {
            return Ok(());
        }
        let read = || self.read(at * SECTOR, count * SECTOR).transpose();
        let Some(bytes) = (0..READS).find_map(|_| read()).transpose()? else {
            // Nobody knows what it holds: so nothing more is promised of it.
            self.lost.set(true);
            return Ok(());
        };
        let mut known = self.file.known();
        known.size.set(self.open.len() / SECTOR);
        for n in 0..count {
            let start = (n * SECTOR) as usize;
            let found = bytes.get(start..start + 8).map_or(0, number);
            known.set(at + n, found);
        }
        Ok(())
    }

    /// Bytes of it; `None` where the device failed.
    fn read(&self, from: u64, count: u64) -> Result<Option<Vec<u8>>, String> {
        let mut bytes = vec![0; self.open.len().saturating_sub(from).min(count) as usize];
        let read = self.open.read_at(&mut bytes, from);
        let (went, read) = self.stage.judge("read", read)?;
        match read {
            Some(read) if read == bytes.len() => Ok(Some(bytes)),
            Some(read) => Err(format!("{read} of {} bytes can be read", bytes.len())),
            None if went == Went::Refused => Err("a read was refused".into()),
            None => Ok(None),
        }
    }

    /// Compares with what was done.
    pub(super) fn compare(&self) -> Result<(), String> {
        let Some(bytes) = self.read(0, u64::MAX)? else { return Ok(()) };
        let known = self.file.known();
        let size = known.size.last() * SECTOR;
        // After a failure it is not known what was done.
        let fails = self.stage.fails;
        if bytes.len() as u64 != size && !fails {
            return Err(format!("it has {} bytes, and should have {size}", bytes.len()));
        }
        for (at, sector) in (0u64..).zip(bytes.chunks(SECTOR as usize)) {
            let (found, wanted) = (number(sector), known.get(at));
            let may = known.sectors.get(&at).is_some_and(|versions| versions.allows(found));
            if found != wanted && !(fails && may) {
                return Err(format!("sector {at} holds {found}, and should hold {wanted}"));
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
