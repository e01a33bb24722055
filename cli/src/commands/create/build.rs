//! The volume: made, filled, unmounted, given its name.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use anyhow::bail;
use base::time::{Clock as _, SystemClock, Time};
use mkfs::Options;
use serde::Serialize;
use transfer::writer::Done;
use transfer::{Survey, Writer};

use super::Arguments;
use super::layout::{Layout, New};
use super::place::Site;
use super::progress::{Progress, Summary};
use super::sources::{Look, Sources};
use crate::args::Global;
use crate::commands::edit::directories;
use crate::commands::mkfs::{self as mkfs_command, wrong};
use crate::excludes::left_out;
use crate::json;
use crate::output::Messages;
use crate::sizes::spoken;

/// Blocks that are added to a volume that was too small, the first time; twice as many each time after that.
const LEAST_SPARE: u64 = 4096;
/// How often that is doubled. A source that does not fit then either grows without end, or meets another limit than
/// the number of blocks.
const MOST_SPARES: u32 = 10;

/// Makes the image, and says what was done.
pub fn build(arguments: &Arguments, global: &Global, messages: &Messages) -> anyhow::Result<()> {
    let (size, summary) = make(arguments, global, messages)?;
    if global.json {
        json::write("create", messages.image(), Document { size, summary })?;
    } else {
        messages.detail(format_args!("{} in all", spoken(size)));
    }
    Ok(())
}

/// Makes the image; how large it is, and what was done.
pub fn make(arguments: &Arguments, global: &Global, messages: &Messages) -> anyhow::Result<(u64, Summary)> {
    let path = &arguments.image;
    if !arguments.force && path.symlink_metadata().is_ok() {
        bail!("it exists already (--force replaces it)");
    }
    let progress = Progress::new(global);
    let site = Site::open(path, arguments.force, arguments.container, global)?;
    if arguments.minimize && site.size().is_some() {
        return Err(wrong("--minimize: a block device keeps its size".into()));
    }
    let choice = Choice::of(arguments, &site)?;
    if arguments.minimize && choice.size.is_some() {
        return Err(wrong("--minimize: -d size says how large the volume is".into()));
    }
    let sources = Sources::open(arguments, choice.looks_first())?;
    let (site, choice, sources, progress) = (&site, &choice, &sources, &progress);
    let making =
        Making { site, arguments, choice, sources, progress, global, messages, left_out: Mutex::default() };
    let (mut new, done) = making.fill_until_it_fits()?;
    progress.phase("filled", messages);
    new.volume.unmount()?;
    progress.phase("unmounted", messages);
    if arguments.minimize {
        // From here on changes go through the log: its last record is to tell of a volume of the new size.
        let options = xebec::Options { without_journal: false, ..new.options };
        let blocks = xebec::resize::shrink(&new.place.volume, &options, None)?.after;
        site.cut(&mut new.place, blocks * u64::from(choice.options.block_size))?;
        progress.phase("minimized", messages);
    }
    let size = site.finish(new.place, choice.ids())?;
    Ok((size, progress.finish(&done, messages)))
}

fn is_full(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(transfer::Error::is_full)
}

/// What volumes are made of.
struct Making<'m> {
    site: &'m Site<'m>,
    arguments: &'m Arguments,
    choice: &'m Choice,
    sources: &'m Sources,
    progress: &'m Progress,
    global: &'m Global,
    messages: &'m Messages,
    /// What was told to be left out.
    left_out: Mutex<HashSet<String>>,
}

impl Making<'_> {
    /// Fills a volume, and where it turns out to be too small, a larger one. Attributes of a file may take more than
    /// those that were looked at; files may grow while they are read; and what the trees of the volume take is bounded
    /// by a rule of thumb.
    fn fill_until_it_fits(&self) -> anyhow::Result<(New, Done)> {
        let spares = (0..MOST_SPARES).map(|n| (Look::Thorough, LEAST_SPARE << n));
        for (how, spare) in [(Look::Brief, 0), (Look::Thorough, 0)].into_iter().chain(spares) {
            match self.fill(how, spare) {
                Err(error) if self.choice.size.is_none() && is_full(&error) => {
                    self.progress.phase("too small, made again", self.messages);
                }
                done => return done,
            }
        }
        self.fill(Look::Thorough, LEAST_SPARE << MOST_SPARES)
    }

    /// Makes a volume that is as large as a look at the sources tells, and puts them into it.
    fn fill(&self, how: Look, spare: u64) -> anyhow::Result<(New, Done)> {
        let &Self { site, arguments, choice, sources, progress, global, messages, left_out: ref told } = self;
        let ignores = arguments.exclude.ignore_unreadable;
        let mut survey = Survey::new(choice.options.block_size).ignoring_unreadable(ignores);
        if choice.looks_first() {
            sources.look(how, global.thread_count(), &mut survey)?;
            progress.phase("looked at the sources", messages);
        }
        let (moment, need) = (choice.moment(survey.newest()), survey.need());
        let new = Layout { site, arguments, choice, moment, need, spare }.make()?;
        if choice.looks_first() {
            progress.expect(need.files, need.bytes);
        }
        let overrides = arguments.wishes.overrides(choice.fixed.then_some(moment))?;
        let root = match arguments.below.is_empty() {
            true => new.volume.root(),
            false => directories(&new.volume, &arguments.below)?,
        };
        let writer = Writer::new(&new.volume, root, overrides);
        let mut writer = writer.in_rounds().watched(|done| progress.show(done));
        if ignores {
            writer = writer.leaving_out_unreadable(|error| {
                let text = left_out(error);
                // An image that was too small is made again: the same warning is shown once.
                if told.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
                    progress.pause(|| messages.warn(text));
                }
            });
        }
        sources.read(global.thread_count(), &mut writer)?;
        let done = writer.finish()?;
        Ok((new, done))
    }
}

#[derive(Serialize)]
struct Document {
    size: u64,
    #[serde(flatten)]
    summary: Summary,
}

/// What is the same for every size.
pub struct Choice {
    pub options: Options,
    /// Bytes of the volume, if the user says how many.
    pub size: Option<u64>,
    /// Nothing is left to chance and to the clock.
    pub fixed: bool,
    epoch: Option<Time>,
}

impl Choice {
    pub fn of(arguments: &Arguments, site: &Site<'_>) -> anyhow::Result<Self> {
        let chosen = arguments.layout.choose(&arguments.image)?;
        if chosen.log_device.is_some() {
            return Err(wrong("-l logdev: the log of an image that is created lies in it".into()));
        }
        let mut options = chosen.options;
        let epoch = std::env::var_os("SOURCE_DATE_EPOCH").is_some();
        let fixed = arguments.reproducible || epoch;
        let seed = arguments.layout.seed();
        options.seed = mkfs_command::seed(if fixed { seed.or(Some("")) } else { seed })?;
        let epoch = if epoch { Some(mkfs_command::time()?) } else { None };
        let epoch = epoch.map(|time| Time { seconds: time.seconds, nanos: time.nanoseconds });
        let image = arguments.size.or_else(|| site.size()).map(|size| size.saturating_sub(site.around()));
        let size = options.size.or(image);
        Ok(Self { options, size, fixed, epoch })
    }

    /// Of the disk and the partition in a partition table.
    fn ids(&self) -> [[u8; 16]; 2] {
        ["disk", "partition"].map(|of| mkfs_command::derived(self.options.seed, of))
    }

    /// Whether the sources are read once without contents, before the volume is made.
    fn looks_first(&self) -> bool {
        self.size.is_none() || self.wants_newest()
    }

    /// Whether the time is that of the newest file.
    fn wants_newest(&self) -> bool {
        self.fixed && self.epoch.is_none()
    }

    /// The time at which all is made.
    fn moment(&self, newest: Time) -> Time {
        match (self.fixed, self.epoch) {
            (true, epoch) => epoch.unwrap_or(newest),
            (false, _) => SystemClock.now(),
        }
    }
}

#[cfg(test)]
mod tests;
