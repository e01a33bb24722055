//! Actors: threads that use a volume, each with an oracle.
//!
//! | actor | works on | oracle |
//! |---|---|---|
//! | [`names`] | a tree of its own | the model of trees |
//! | [`contents`] | files of its own | the values of each sector since its last successful `fsync` |
//! | [`scatter`] | an old file, by single blocks | the same |
//! | [`filler`] | a file that fills the volume | the same |
//! | [`attributes`] | attributes of files of its own | the value of each attribute |
//! | [`churn`] | a large directory that is removed, and files that reuse its blocks | the contents of the files |
//! | [`together`] | names and files that several actors share | calls do not fail with EIO or damage |
//! | [`operator`] | the volume | calls succeed |

pub mod attributes;
pub mod churn;
pub mod contents;
pub mod filler;
pub mod names;
pub mod operator;
pub mod scatter;
pub mod together;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{errno, thread};
use crashsim::Image;
use crashsim::engine::OpenVolume;
use crashsim::stamped::ExpectedFile;
use model::{History, Rng, Ticks};
use volume::{Error, FileId, NewFile, Volume};

use crate::aged;
use crate::scenario::{Role, Scenario};

/// A file with the values that its sectors may have, shared with the checks of power cuts.
#[derive(Debug)]
pub struct TrackedFile {
    /// Inode number.
    pub id: FileId,
    known: Mutex<ExpectedFile>,
}

impl TrackedFile {
    /// The values that it may have now.
    pub fn known(&self) -> MutexGuard<'_, ExpectedFile> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The image that a power cut left, and what it must contain.
pub struct PowerCut {
    /// Image of the device.
    pub image: Image,
    /// For each tree, the number of steps that must have survived.
    pub stable: Vec<usize>,
    /// The values that each file may have.
    pub known: Vec<ExpectedFile>,
}

/// State that all actors of a round share.
pub struct RoundState {
    /// The volume.
    pub open: OpenVolume,
    /// Sectors per block.
    pub block: u64,
    /// Orders the calls of all threads.
    pub ticks: Ticks,
    /// Whether the device may fail: then calls may return `EIO`, and the volume may be shut down.
    pub fails: bool,
    /// What power cuts are checked against.
    pub expected: Arc<Expectations>,
    /// Directory that several actors share.
    pub common: FileId,
    numbers: AtomicU64,
}

/// What power cuts are checked against.
#[derive(Default)]
pub struct Expectations {
    /// Home directories of trees.
    pub homes: Vec<u64>,
    /// Number of finished steps per tree.
    pub ended: Vec<AtomicUsize>,
    /// Number of steps per tree that a sync covered.
    pub stable: Vec<AtomicUsize>,
    /// Files with numbered sectors.
    pub files: Vec<Arc<TrackedFile>>,
    /// Power cuts.
    pub cuts: Mutex<Vec<PowerCut>>,
    /// Set if an actor failed: the others stop.
    pub over: AtomicBool,
}

impl Expectations {
    /// Records the image of a power cut.
    pub fn cut(&self, image: Image) {
        let stable = self.stable.iter().map(|stable| stable.load(SeqCst)).collect();
        let known = self.files.iter().map(|file| file.known().clone()).collect();
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner).push(PowerCut { image, stable, known });
    }

    /// Number of finished steps per tree.
    pub fn lengths(&self) -> Vec<usize> {
        self.ended.iter().map(|ended| ended.load(SeqCst)).collect()
    }

    /// Records that a sync returned; it started when `lengths` steps had finished.
    pub fn synced(&self, lengths: &[usize]) {
        for (stable, length) in self.stable.iter().zip(lengths) {
            stable.fetch_max(*length, SeqCst);
        }
    }
}

/// Result of an actor, for the check of the unmounted volume.
pub enum ActorResult {
    /// History of its tree.
    History(History),
    /// Nothing to check.
    Nothing,
    /// Expected attributes.
    Attributes(attributes::ExpectedAttributes),
}

/// Permitted result of an actor's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// Success.
    Done,
    /// The volume is full, or the call is not permitted: nothing was done, or a part of a write.
    Refused,
    /// The device failed.
    Failed,
}

impl RoundState {
    /// State for an open volume.
    pub fn new(open: OpenVolume, fails: bool, expected: Arc<Expectations>, common: FileId) -> Self {
        let block = u64::from(open.volume().geometry().block_size) / 512;
        Self { open, block, ticks: Ticks::default(), fails, expected, common, numbers: AtomicU64::new(1) }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        self.open.volume()
    }

    /// Numbers that no sector has yet.
    pub fn fresh(&self, count: u64) -> std::ops::Range<u64> {
        let first = self.numbers.fetch_add(count, SeqCst);
        first..first + count
    }

    /// Whether all actors should stop.
    pub fn is_over(&self) -> bool {
        self.expected.over.load(SeqCst)
    }

    /// Classifies the result of a call. Only a failing device permits `EIO`, a shutdown or damage.
    ///
    /// # Errors
    /// A description of a result that is not permitted.
    pub fn classify<T>(
        &self,
        call: &str,
        result: Result<T, Error>,
    ) -> Result<(CallResult, Option<T>), String> {
        match result {
            Ok(value) => Ok((CallResult::Done, Some(value))),
            Err(error) if [errno::EIO, errno::EFSCORRUPTED].contains(&error.errno()) => match self.fails {
                true => Ok((CallResult::Failed, None)),
                false => Err(format!("{call}: {error}")),
            },
            Err(_) => Ok((CallResult::Refused, None)),
        }
    }

    /// Classifies the result of a call that must not be refused. Returns `false` if the device failed.
    ///
    /// # Errors
    /// A description of a result that is not permitted.
    pub fn require<T>(&self, call: &str, result: Result<T, Error>) -> Result<bool, String> {
        let message = result.as_ref().err().map(ToString::to_string);
        match self.classify(call, result)?.0 {
            CallResult::Done => Ok(true),
            CallResult::Failed => Ok(false),
            CallResult::Refused => Err(format!("{call}: {}", message.unwrap_or_default())),
        }
    }
}

/// An actor with its files.
pub enum Actor {
    /// [`names`]
    Names(usize),
    /// [`contents`]
    Contents(Vec<Arc<TrackedFile>>),
    /// [`scatter`]
    Scatter(Arc<TrackedFile>),
    /// [`filler`]
    Filler(Arc<TrackedFile>),
    /// [`attributes`]
    Attributes(Vec<FileId>),
    /// [`churn`]
    Churn(FileId, Arc<TrackedFile>),
    /// [`together`]
    Together,
    /// [`operator`]
    Operator,
}

/// The actors of a round by number, the expectations, and the directory that several share.
pub type Prepared = (Vec<(usize, Actor)>, Expectations, FileId);

/// Creates the actors of a round with their files.
///
/// # Errors
/// Those of the volume: it may be too full.
pub fn prepare(scenario: &Scenario, volume: &Volume, round: usize) -> Result<Prepared, Error> {
    let top = volume.create(volume.root(), format!("round{round}").as_bytes(), &NewFile::directory())?;
    let striped = round * STRIPED_PER_ROUND..(round + 1) * STRIPED_PER_ROUND;
    let mut maker = ActorBuilder { volume, expected: Expectations::default(), common: top, striped };
    let mut actors = Vec::new();
    for (n, role) in scenario.actors() {
        let home = volume.create(top, format!("actor{n}").as_bytes(), &NewFile::directory())?;
        actors.extend(maker.actor(role, home)?.map(|actor| (n, actor)));
    }
    Ok((actors, maker.expected, maker.common))
}

/// Number of striped files per round. The next round uses others: after a power cut, a file may have any of its allowed
/// values.
const STRIPED_PER_ROUND: usize = 3;

/// Creates actors.
struct ActorBuilder<'v> {
    volume: &'v Volume,
    expected: Expectations,
    common: FileId,
    /// Striped files that no actor of this round uses yet.
    striped: Range<usize>,
}

impl ActorBuilder<'_> {
    /// Creates an actor with a home directory; `None` if the volume lacks a file for it.
    fn actor(&mut self, role: Role, home: FileId) -> Result<Option<Actor>, Error> {
        Ok(Some(match role {
            Role::Names => {
                self.expected.homes.push(home.ino.get());
                self.expected.ended.push(AtomicUsize::new(0));
                self.expected.stable.push(AtomicUsize::new(0));
                Actor::Names(self.expected.homes.len() - 1)
            }
            Role::Contents => {
                let last = contents::FILES - 1;
                let files = self.files(home, contents::FILES)?;
                let known =
                    files.iter().enumerate().map(|(n, id)| self.known(*id, ExpectedFile::new(n == last)));
                Actor::Contents(known.collect())
            }
            Role::Scatter => {
                let Some(number) = self.striped.next() else { return Ok(None) };
                let Some((id, stripes)) = aged::striped(self.volume, number)? else { return Ok(None) };
                Actor::Scatter(self.known(id, ExpectedFile::striped(stripes)))
            }
            Role::Filler => Actor::Filler(self.own_file(home)?),
            Role::Attributes => Actor::Attributes(self.files(home, attributes::FILES)?),
            Role::Churn => Actor::Churn(home, self.own_file(home)?),
            Role::Together => {
                self.common = home;
                Actor::Together
            }
            Role::Operator => Actor::Operator,
        }))
    }

    fn files(&self, home: FileId, count: usize) -> Result<Vec<FileId>, Error> {
        let create = |n| self.volume.create(home, format!("file{n}").as_bytes(), &NewFile::regular());
        (0..count).map(create).collect()
    }

    fn own_file(&mut self, home: FileId) -> Result<Arc<TrackedFile>, Error> {
        let id = self.volume.create(home, b"file", &NewFile::regular())?;
        Ok(self.known(id, ExpectedFile::new(false)))
    }

    fn known(&mut self, id: FileId, known: ExpectedFile) -> Arc<TrackedFile> {
        let file = Arc::new(TrackedFile { id, known: Mutex::new(known) });
        self.expected.files.push(Arc::clone(&file));
        file
    }
}

impl Actor {
    /// Runs the actor.
    ///
    /// # Errors
    /// A description of a wrong result.
    pub fn work(&self, state: &Arc<RoundState>, rng: Rng, steps: usize) -> Result<ActorResult, String> {
        match self {
            Self::Names(tree) => names::work(state, *tree, rng, steps).map(ActorResult::History),
            Self::Contents(files) => contents::work(state, files, rng, steps).map(|()| ActorResult::Nothing),
            Self::Scatter(file) => scatter::work(state, file, rng, steps).map(|()| ActorResult::Nothing),
            Self::Filler(file) => filler::work(state, file, rng, steps).map(|()| ActorResult::Nothing),
            Self::Attributes(files) => {
                attributes::work(state, files, rng, steps).map(ActorResult::Attributes)
            }
            Self::Churn(home, file) => {
                churn::work(state, *home, file, rng, steps).map(|()| ActorResult::Nothing)
            }
            Self::Together => together::work(state, rng, steps).map(|()| ActorResult::Nothing),
            Self::Operator => operator::work(state, rng, steps).map(|()| ActorResult::Nothing),
        }
    }
}

/// Sleeps at random, so that background work finds an idle volume.
pub fn pause(rng: &mut Rng) {
    if rng.one_in(12) {
        let longest = [1_000, 100_000, 40_000_000][rng.index(3)];
        thread::sleep(Duration::from_micros(rng.below(longest)));
    }
}
