//! Fills a volume, and a larger one if it was too small.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use base::time::{Clock as _, SystemClock, Time};
use format::compatibility::Reader;
use mkfs::Options;
use volume::{FileId, NewFile, Volume};

use super::container::Target;
use super::layout::{Layout, NewVolume};
use super::sources::{Sources, SurveyDepth};
use super::{BuiltImage, FreeSpace, ImageBuilder, seed};
use crate::options::thread_count;
use crate::progress::{Counts, Notice, Phase, Progress};
use crate::survey::Survey;
use crate::writer::{ImportReport, Writer};
use crate::{Error, Result};

/// Blocks that are added to a volume that was too small; doubled for each further attempt.
const SPARE_MIN: u64 = 4096;
/// Number of attempts with spare blocks. If the sources do not fit then, they grow without end, or another limit than
/// the number of blocks is reached.
const ATTEMPTS_MAX: u32 = 10;

/// Builds an image.
pub fn build(mut builder: ImageBuilder<'_>) -> Result<BuiltImage> {
    let image = builder.image.clone();
    if !builder.replace && builder.device.is_none() && image.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: image });
    }
    let target = Target::open(&image, &builder)?;
    if builder.minimize && target.device_size().is_some() {
        return Err(Error::option("minimize", "a block device keeps its size"));
    }
    let plans = Plans::new(&builder, &target)?;
    if builder.minimize && plans.size.is_some() {
        return Err(Error::option("minimize", "the size of the volume is given"));
    }
    let sources = Sources::open(&mut builder, plans.surveys())?;
    let progress = OnceProgress { progress: builder.progress, shown: Mutex::default() };
    let attempt = Attempt { builder: &builder, target: &target, plans: &plans, sources: &sources };
    let (mut new, report) = attempt.fill_until_it_fits(&progress)?;
    progress.phase(Phase::Filled);
    new.volume.unmount().map_err(Error::NewVolume)?;
    progress.phase(Phase::Unmounted);
    if builder.minimize {
        // Recorded in the log, whose last record must have the new size of the volume.
        let options = volume::Options { without_journal: false, ..new.options };
        let shrunk = volume::resize::shrink(&new.image.volume, &options, None)
            .map_err(|error| Error::NewVolume(error.into()))?;
        target.truncate(&mut new.image, shrunk.after * u64::from(plans.format.block_size))?;
        progress.phase(Phase::Minimized);
    }
    let uuids = ["disk", "partition"].map(|purpose| seed::derived(plans.format.seed, purpose));
    let size = target.finish(new.image, uuids)?;
    Ok(BuiltImage { size, report })
}

/// What is decided before the sources are read.
pub struct Plans {
    pub format: Options,
    pub readers: Vec<Reader>,
    /// Size of the volume, if it is given.
    pub size: Option<u64>,
    pub free: Option<FreeSpace>,
    pub is_reproducible: bool,
    time: Option<Time>,
}

impl Plans {
    pub fn new(builder: &ImageBuilder<'_>, target: &Target<'_>) -> Result<Self> {
        let is_reproducible = builder.is_reproducible();
        let mut format = builder.format.clone();
        format.seed = match (&builder.seed, is_reproducible) {
            (Some(text), _) => seed::from_text(text),
            (None, true) => seed::from_text(""),
            (None, false) => seed::random().map_err(Error::Random)?,
        };
        let image = builder.size.or_else(|| target.device_size());
        let image = image.map(|size| size.saturating_sub(target.overhead()));
        let size = format.size.or(image);
        let (readers, free, time) = (builder.readers.clone(), builder.free, builder.time);
        Ok(Self { format, readers, size, free, is_reproducible, time })
    }

    /// Whether the sources are read without contents before the volume is created.
    fn surveys(&self) -> bool {
        self.size.is_none() || (self.is_reproducible && self.time.is_none())
    }

    /// The time of the image, given that of the newest file.
    fn time(&self, newest: Time) -> Time {
        match (self.is_reproducible, self.time) {
            (true, time) => time.unwrap_or(newest),
            (false, _) => SystemClock.now(),
        }
    }
}

/// What all attempts share.
struct Attempt<'a> {
    builder: &'a ImageBuilder<'a>,
    target: &'a Target<'a>,
    plans: &'a Plans,
    sources: &'a Sources,
}

impl Attempt<'_> {
    /// Fills a volume, and larger ones as long as it is too small: attributes may take more than those of the sample,
    /// files may grow while they are read, and the metadata of the volume is estimated.
    fn fill_until_it_fits(&self, progress: &dyn Progress) -> Result<(NewVolume, ImportReport)> {
        let spares = (0..ATTEMPTS_MAX).map(|n| (SurveyDepth::Full, SPARE_MIN << n));
        for (depth, spare) in [(SurveyDepth::Sampled, 0), (SurveyDepth::Full, 0)].into_iter().chain(spares) {
            match self.fill(depth, spare, progress) {
                Err(error) if self.plans.size.is_none() && error.is_full() => {
                    progress.phase(Phase::TooSmall);
                }
                result => return result,
            }
        }
        self.fill(SurveyDepth::Full, SPARE_MIN << ATTEMPTS_MAX, progress)
    }

    /// Creates a volume of the estimated size, and imports the sources.
    fn fill(
        &self,
        depth: SurveyDepth,
        spare: u64,
        progress: &dyn Progress,
    ) -> Result<(NewVolume, ImportReport)> {
        let &Self { builder, target, plans, sources } = self;
        let threads = thread_count(builder.threads);
        let mut survey = Survey::new(plans.format.block_size)
            .skip_unreadable(builder.skip_unreadable)
            .cancel(builder.cancel.clone());
        if plans.surveys() {
            sources.survey(depth, threads, &mut survey)?;
            progress.phase(Phase::Surveyed);
        }
        let (time, estimate) = (plans.time(survey.newest()), survey.estimate());
        let new = Layout { target, plans, time, estimate, spare }.create()?;
        if plans.surveys() {
            progress.expect(Counts { files: estimate.files, bytes: estimate.bytes });
        }
        let mut overrides = builder.overrides.clone();
        overrides.latest = plans.is_reproducible.then_some(time);
        let root = directory(&new.volume, &builder.target_directory)?;
        let mut writer = Writer::new(&new.volume, root, overrides)
            .in_rounds()
            .skip_unreadable(builder.skip_unreadable)
            .progress(progress)
            .cancel(builder.cancel.clone());
        sources.read(threads, &mut writer)?;
        let report = writer.finish()?;
        Ok((new, report))
    }
}

/// Creates the target directory.
fn directory(volume: &Volume, path: &[u8]) -> Result<FileId> {
    if path.is_empty() {
        return Ok(volume.root());
    }
    let new = NewFile { permissions: 0o755, ..NewFile::directory() };
    volume.create_dir_all(path, &new).map_err(Error::NewVolume)?;
    volume.resolve(path, true).map_err(Error::NewVolume)
}

/// Passes each message on once, as every attempt produces it again.
struct OnceProgress<'p> {
    progress: &'p dyn Progress,
    shown: Mutex<HashSet<String>>,
}

impl Progress for OnceProgress<'_> {
    fn expect(&self, total: Counts) {
        self.progress.expect(total);
    }

    fn advance(&self, done: Counts) {
        self.progress.advance(done);
    }

    fn phase(&self, phase: Phase) {
        self.progress.phase(phase);
    }

    fn notice(&self, notice: &Notice) {
        if self.shown.lock().unwrap_or_else(PoisonError::into_inner).insert(notice.to_string()) {
            self.progress.notice(notice);
        }
    }
}

#[cfg(test)]
mod tests;
