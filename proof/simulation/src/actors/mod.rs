//! Threads that work on a volume, each with an oracle of its own.
//!
//! | actor | works on | knows |
//! |---|---|---|
//! | [`names`] | a tree of its own | the model of trees |
//! | [`contents`] | files of its own | what each sector held since its last successful `fsync` |
//! | [`scatter`] | an old file, by single blocks | the same |
//! | [`filler`] | a file that takes all space that is left | the same |
//! | [`attributes`] | attributes of files of its own | each value |
//! | [`churn`] | a directory that grows large and vanishes, and files that take its blocks | what the files hold |
//! | [`together`] | names and files that it shares with its kind | that nothing breaks |
//! | [`operator`] | the volume | that it succeeds |

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

use base::{Ino, errno, thread};
use crashsim::Image;
use crashsim::engine::OpenVolume;
use crashsim::stamped::ExpectedFile;
use model::{History, Rng, Ticks};
use volume::{Error, NewFile, Volume};

use crate::aged;
use crate::scenario::{Role, Scenario};

/// What is known of a file's contents, shared with those that judge cuts.
#[derive(Debug)]
pub struct KnownFile {
    /// The file.
    pub ino: Ino,
    known: Mutex<ExpectedFile>,
}

impl KnownFile {
    /// What it may hold now.
    pub fn known(&self) -> MutexGuard<'_, ExpectedFile> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a power cut left, and what must be found there.
pub struct Cut {
    /// The device.
    pub image: Image,
    /// For each tree, how many steps must have survived.
    pub least: Vec<usize>,
    /// What each file may hold.
    pub known: Vec<ExpectedFile>,
}

/// What all actors of a round share.
pub struct Stage {
    /// The volume.
    pub open: OpenVolume,
    /// Blocks of a file are a multiple of so many sectors.
    pub block: u64,
    /// The order of calls across threads.
    pub ticks: Ticks,
    /// The device fails now and then: calls may give `EIO`, and the volume may be shut down.
    pub fails: bool,
    /// What the judges of cuts look at.
    pub seen: Arc<Seen>,
    /// A directory that several share.
    pub common: Ino,
    numbers: AtomicU64,
}

/// What is known at each moment, by those that judge power cuts.
#[derive(Default)]
pub struct Seen {
    /// Home directories of trees.
    pub homes: Vec<u64>,
    /// Steps of each tree that ended.
    pub ended: Vec<AtomicUsize>,
    /// Steps of each tree that a sync covered.
    pub stable: Vec<AtomicUsize>,
    /// Files with stamped sectors.
    pub files: Vec<Arc<KnownFile>>,
    /// The cuts.
    pub cuts: Mutex<Vec<Cut>>,
    /// An actor failed: the others need not go on.
    pub over: AtomicBool,
}

impl Seen {
    /// Keeps what a cut left.
    pub fn cut(&self, image: Image) {
        let least = self.stable.iter().map(|stable| stable.load(SeqCst)).collect();
        let known = self.files.iter().map(|file| file.known().clone()).collect();
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner).push(Cut { image, least, known });
    }

    /// Steps that ended by now, for each tree.
    pub fn lengths(&self) -> Vec<usize> {
        self.ended.iter().map(|ended| ended.load(SeqCst)).collect()
    }

    /// A sync that began when so many steps had ended has returned.
    pub fn synced(&self, lengths: &[usize]) {
        for (stable, length) in self.stable.iter().zip(lengths) {
            stable.fetch_max(*length, SeqCst);
        }
    }
}

/// What an actor leaves.
pub enum Left {
    /// The history of its tree.
    History(History),
    /// Nothing to be judged later.
    Nothing,
    /// Attributes that must be there.
    Attributes(attributes::Wanted),
}

/// How an actor's call went that the model has nothing against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    /// Well.
    Well,
    /// The volume is full, or refuses by a rule: nothing was done, or a part of a write.
    Refused,
    /// The device failed.
    Failed,
}

impl Stage {
    /// A stage on an open volume.
    pub fn new(open: OpenVolume, fails: bool, seen: Arc<Seen>, common: Ino) -> Self {
        let block = u64::from(open.volume().geometry().block_size) / 512;
        Self { open, block, ticks: Ticks::default(), fails, seen, common, numbers: AtomicU64::new(1) }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        self.open.volume()
    }

    /// Numbers that no sector holds yet.
    pub fn fresh(&self, count: u64) -> std::ops::Range<u64> {
        let first = self.numbers.fetch_add(count, SeqCst);
        first..first + count
    }

    /// Whether all should end.
    pub fn is_over(&self) -> bool {
        self.seen.over.load(SeqCst)
    }

    /// Judges how a call went: only a device that fails excuses `EIO`, a shutdown or damage.
    ///
    /// # Errors
    /// In words, what nothing excuses.
    pub fn judge<T>(&self, what: &str, result: Result<T, Error>) -> Result<(Went, Option<T>), String> {
        match result {
            Ok(value) => Ok((Went::Well, Some(value))),
            Err(error) if [errno::EIO, errno::EFSCORRUPTED].contains(&error.errno()) => match self.fails {
                true => Ok((Went::Failed, None)),
                false => Err(format!("{what}: {error}")),
            },
            Err(_) => Ok((Went::Refused, None)),
        }
    }

    /// The same for a call that must not be refused: what makes things stable.
    ///
    /// # Errors
    /// In words.
    pub fn must<T>(&self, what: &str, result: Result<T, Error>) -> Result<bool, String> {
        let told = result.as_ref().err().map(ToString::to_string);
        match self.judge(what, result)?.0 {
            Went::Well => Ok(true),
            Went::Failed => Ok(false),
            Went::Refused => Err(format!("{what}: {}", told.unwrap_or_default())),
        }
    }
}

/// One actor, and what was made for it.
pub enum Actor {
    /// [`names`]
    Names(usize),
    /// [`contents`]
    Contents(Vec<Arc<KnownFile>>),
    /// [`scatter`]
    Scatter(Arc<KnownFile>),
    /// [`filler`]
    Filler(Arc<KnownFile>),
    /// [`attributes`]
    Attributes(Vec<Ino>),
    /// [`churn`]
    Churn(Ino, Arc<KnownFile>),
    /// [`together`]
    Together,
    /// [`operator`]
    Operator,
}

/// What a round begins with: its actors by number, what is known, and the directory that several share.
pub type Prepared = (Vec<(usize, Actor)>, Seen, Ino);

/// Makes what the actors of a round need.
///
/// # Errors
/// Those of the volume: it may be too full.
pub fn prepare(scenario: &Scenario, volume: &Volume, round: usize) -> Result<Prepared, Error> {
    let top = volume.create(volume.root(), format!("round{round}").as_bytes(), &NewFile::directory())?;
    let striped = round * STRIPED_OF_A_ROUND..(round + 1) * STRIPED_OF_A_ROUND;
    let mut maker = Maker { volume, seen: Seen::default(), common: top, striped };
    let mut actors = Vec::new();
    for (n, role) in scenario.actors() {
        let home = volume.create(top, format!("actor{n}").as_bytes(), &NewFile::directory())?;
        actors.extend(maker.actor(role, home)?.map(|actor| (n, actor)));
    }
    Ok((actors, maker.seen, maker.common))
}

/// Striped files of one round. The next round has others: after a power cut, nobody knows which of the allowed contents
/// a file has.
const STRIPED_OF_A_ROUND: usize = 3;

/// Makes actors.
struct Maker<'v> {
    volume: &'v Volume,
    seen: Seen,
    common: Ino,
    /// Striped files that no actor of this round has yet.
    striped: Range<usize>,
}

impl Maker<'_> {
    /// An actor with a home directory; `None` where the volume has not what it works on.
    fn actor(&mut self, role: Role, home: Ino) -> Result<Option<Actor>, Error> {
        Ok(Some(match role {
            Role::Names => {
                self.seen.homes.push(home.get());
                self.seen.ended.push(AtomicUsize::new(0));
                self.seen.stable.push(AtomicUsize::new(0));
                Actor::Names(self.seen.homes.len() - 1)
            }
            Role::Contents => {
                let last = contents::FILES - 1;
                let files = self.files(home, contents::FILES)?;
                let known =
                    files.iter().enumerate().map(|(n, ino)| self.known(*ino, ExpectedFile::new(n == last)));
                Actor::Contents(known.collect())
            }
            Role::Scatter => {
                let Some(number) = self.striped.next() else { return Ok(None) };
                let Some((ino, stripes)) = aged::striped(self.volume, number)? else { return Ok(None) };
                Actor::Scatter(self.known(ino, ExpectedFile::striped(stripes)))
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

    fn files(&self, home: Ino, count: usize) -> Result<Vec<Ino>, Error> {
        let create = |n| self.volume.create(home, format!("file{n}").as_bytes(), &NewFile::regular());
        (0..count).map(create).collect()
    }

    fn own_file(&mut self, home: Ino) -> Result<Arc<KnownFile>, Error> {
        let ino = self.volume.create(home, b"file", &NewFile::regular())?;
        Ok(self.known(ino, ExpectedFile::new(false)))
    }

    fn known(&mut self, ino: Ino, known: ExpectedFile) -> Arc<KnownFile> {
        let file = Arc::new(KnownFile { ino, known: Mutex::new(known) });
        self.seen.files.push(Arc::clone(&file));
        file
    }
}

impl Actor {
    /// Does its work.
    ///
    /// # Errors
    /// In words, an answer that is wrong.
    pub fn work(&self, stage: &Arc<Stage>, rng: Rng, steps: usize) -> Result<Left, String> {
        match self {
            Self::Names(tree) => names::work(stage, *tree, rng, steps).map(Left::History),
            Self::Contents(files) => contents::work(stage, files, rng, steps).map(|()| Left::Nothing),
            Self::Scatter(file) => scatter::work(stage, file, rng, steps).map(|()| Left::Nothing),
            Self::Filler(file) => filler::work(stage, file, rng, steps).map(|()| Left::Nothing),
            Self::Attributes(files) => attributes::work(stage, files, rng, steps).map(Left::Attributes),
            Self::Churn(home, file) => churn::work(stage, *home, file, rng, steps).map(|()| Left::Nothing),
            Self::Together => together::work(stage, rng, steps).map(|()| Left::Nothing),
            Self::Operator => operator::work(stage, rng, steps).map(|()| Left::Nothing),
        }
    }
}

/// Rests now and then, so that background work finds an idle volume.
pub fn rest(rng: &mut Rng) {
    if rng.one_in(12) {
        let longest = [1_000, 100_000, 40_000_000][rng.index(3)];
        thread::sleep(Duration::from_micros(rng.below(longest)));
    }
}
