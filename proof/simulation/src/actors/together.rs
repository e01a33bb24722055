//! Uses names and files that several actors share: any result is permitted except EIO and damage.

use model::Rng;
use volume::{Error, FileId, NewFile, NewFileType, Rename, SetAttribute, SetMetadata, Volume};

use super::{CallResult, RoundState, pause};

/// Runs the actor.
///
/// # Errors
/// A description of a wrong result.
pub fn work(state: &RoundState, mut rng: Rng, steps: usize) -> Result<(), String> {
    let common = state.volume().open_id(state.common).map_err(|error| format!("opening: {error}"))?;
    let mut worker = Worker { volume: state.volume(), dirs: vec![common], handles: Vec::new() };
    for step in 0..steps {
        if state.is_over() {
            break;
        }
        let done = worker.step(&mut rng);
        if state.classify("a call on shared names", done).map_err(|what| format!("step {step}: {what}"))?.0
            == CallResult::Failed
        {
            break;
        }
        pause(&mut rng);
    }
    Ok(())
}

struct Worker<'s> {
    volume: &'s Volume,
    /// Directories, some of them removed. The references keep their inode numbers from being used by another actor.
    dirs: Vec<volume::Handle>,
    handles: Vec<volume::Handle>,
}

fn name(rng: &mut Rng) -> Vec<u8> {
    match rng.below(3) {
        0 => format!("{:0120}", rng.below(12)).into_bytes(),
        _ => format!("{}", rng.below(12)).into_bytes(),
    }
}

impl Worker<'_> {
    fn dir(&self, rng: &mut Rng) -> FileId {
        self.dirs[rng.index(self.dirs.len())].id()
    }

    fn step(&mut self, rng: &mut Rng) -> Result<(), Error> {
        let (volume, dir, name) = (self.volume, self.dir(rng), name(rng));
        match rng.below(100) {
            0..25 => self.create(dir, &name, rng),
            25..45 => match rng.one_in(4) {
                true => volume.rmdir(dir, &name),
                false => volume.unlink(dir, &name),
            },
            45..60 => {
                let how = [Rename::Exchange, Rename::Whiteout, Rename::NoReplace, Rename::Replace];
                volume.rename(dir, &name, self.dir(rng), &self::name(rng), how[rng.index(4)])
            }
            60..66 => {
                let file = volume.lookup_handle(dir, &name)?;
                volume.link(file.id(), self.dir(rng), &self::name(rng))
            }
            66..74 => self.open_handle(dir, &name, rng),
            74..84 => self.contents(dir, &name, rng),
            84..97 => self.change(dir, &name, rng),
            _ => volume.sync(),
        }
    }

    fn create(&mut self, dir: FileId, name: &[u8], rng: &mut Rng) -> Result<(), Error> {
        let target = [b't'; 900];
        let kind = match rng.below(6) {
            0 | 1 => NewFileType::Directory,
            2 => NewFileType::Symlink(&target),
            3 => NewFileType::Fifo,
            _ => NewFileType::Regular,
        };
        let made =
            self.volume.create_handle(dir, name, &NewFile { file_type: kind, ..NewFile::regular() })?;
        if kind == NewFileType::Directory {
            self.dirs.truncate(4);
            self.dirs.push(made);
        }
        Ok(())
    }

    fn open_handle(&mut self, dir: FileId, name: &[u8], rng: &mut Rng) -> Result<(), Error> {
        if self.handles.len() > 4 {
            self.handles.swap_remove(rng.index(5));
        }
        let handle = match rng.below(3) {
            0 => self.volume.create_tmpfile(dir, &NewFile::regular())?,
            1 => self.volume.lookup_handle(dir, name)?,
            _ => {
                let Some(handle) = self.handles.pop() else { return Ok(()) };
                return self.volume.link_handle(&handle, dir, name);
            }
        };
        self.handles.push(handle);
        Ok(())
    }

    fn contents(&self, dir: FileId, name: &[u8], rng: &mut Rng) -> Result<(), Error> {
        let handle = self.volume.lookup_handle(dir, name)?;
        let file = self.volume.open_file(handle.id())?;
        let at = rng.below(100_000);
        match rng.below(6) {
            0 => file.set_len(at),
            1 => file.sync_all(),
            2 => file.punch_hole(at, 1 + rng.below(50_000)),
            3 => file.read_at(&mut [0; 5000], at).map(drop),
            _ => file.write_at(&vec![7; 1 + rng.index(40_000)], at).map(drop),
        }
    }

    fn change(&self, dir: FileId, name: &[u8], rng: &mut Rng) -> Result<(), Error> {
        let handle = self.volume.lookup_handle(dir, name)?;
        let file = handle.id();
        let attribute = format!("user.{}", rng.below(4));
        match rng.below(4) {
            0 => {
                let set = SetMetadata { permissions: Some(0o600), ..SetMetadata::default() };
                self.volume.set_metadata(file, &set)
            }
            1 => {
                let value = vec![7; rng.index(3000)];
                self.volume.set_attribute(file, attribute.as_bytes(), &value, SetAttribute::Any)
            }
            2 => self.volume.remove_attribute(file, attribute.as_bytes()),
            _ => self.volume.list_attributes(file).map(drop),
        }
    }
}
