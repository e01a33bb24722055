//! The volume: how large, made, filled, unmounted, given its name.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use base::time::{Clock, FixedClock, SystemClock, Time};
use format::timestamp::Timestamp;
use import::writer::Done;
use import::{Need, Survey, Writer};
use mkfs::{LogPlace, MkfsError, Options, Plan};
use serde::Serialize;
use xebec::Volume;

use super::place::{Place, Site};
use super::progress::{Progress, Summary};
use super::sources::{Look, Sources};
use super::{Arguments, Free};
use crate::args::Global;
use crate::commands::mkfs::{self as make, wrong};
use crate::output::{JSON_VERSION, Messages, write_json};
use crate::sizes::spoken;

/// Smallest volume that Linux takes.
const SMALLEST: u64 = 16 << 20;
/// A layout that is refused for a volume of this size is refused for another reason.
const LARGE_ENOUGH: u64 = 8 << 30;
/// Volumes are so many bytes, or a multiple of it.
const UNIT: u64 = 1 << 20;
/// Contents that are in memory, written and not written.
const CACHE_BYTES: u64 = 64 << 20;
/// Metadata that are in memory.
const BUFFER_BYTES: usize = 64 << 20;
/// Inodes that are in memory.
const INODES: usize = 16 << 10;

/// Makes the image.
pub fn build(arguments: &Arguments, global: &Global, messages: &Messages) -> anyhow::Result<()> {
    let path = &arguments.image;
    if !arguments.force && path.symlink_metadata().is_ok() {
        bail!("it exists already (--force replaces it)");
    }
    let progress = Progress::new(global);
    let site = Site::open(path, arguments.force, arguments.container)?;
    if arguments.minimize && site.size().is_some() {
        return Err(wrong("--minimize: a block device keeps its size".into()));
    }
    let choice = Choice::of(arguments, &site)?;
    if arguments.minimize && choice.size.is_some() {
        return Err(wrong("--minimize: -d size says how large the volume is".into()));
    }
    let sources = Sources::open(arguments, choice.looks_first())?;
    let (site, choice, sources, progress) = (&site, &choice, &sources, &progress);
    let making = Making { site, arguments, choice, sources, progress, global, messages };
    let (mut new, done) = match making.fill(Look::Brief) {
        // Attributes take more than those that were looked at.
        Err(error) if choice.size.is_none() && is_full(&error) => making.fill(Look::Thorough)?,
        made => made?,
    };
    progress.phase("filled", messages);
    new.volume.unmount()?;
    progress.phase("unmounted", messages);
    if arguments.minimize {
        // From here on changes go through the log: its last record is to tell of a volume of the new size.
        let options = xebec::Options { unrecorded: false, ..new.options };
        let blocks = xebec::resize::shrink(&new.place.volume, &options, None)?.after;
        site.cut(&mut new.place, blocks * u64::from(choice.options.block_size))?;
        progress.phase("minimized", messages);
    }
    let size = site.finish(new.place, choice.ids())?;
    let summary = progress.finish(&done, messages);
    if global.json {
        write_json(&Document {
            version: JSON_VERSION,
            command: "create",
            image: messages.image(),
            size,
            summary,
        })?;
    } else {
        messages.detail(format_args!("{} in all", spoken(size)));
    }
    Ok(())
}

fn is_full(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(import::Error::is_full)
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
}

impl Making<'_> {
    /// Makes a volume that is as large as a look at the sources tells, and puts them into it.
    fn fill(&self, how: Look) -> anyhow::Result<(New, Done)> {
        let &Self { site, arguments, choice, sources, progress, global, messages } = self;
        let mut survey = Survey::new(choice.options.block_size);
        if choice.looks_first() {
            sources.look(how, global.thread_count(), &mut survey)?;
            progress.phase("looked at the sources", messages);
        }
        let (moment, need) = (choice.moment(survey.newest()), survey.need());
        let new = Layout { site, arguments, choice, moment, need }.make()?;
        if choice.looks_first() {
            progress.expect(need.files, need.bytes);
        }
        let overrides = arguments.wishes.overrides(choice.fixed.then_some(moment))?;
        let writer = Writer::new(&new.volume, new.volume.root(), overrides);
        let mut writer = writer.in_rounds().watched(|done| progress.show(done));
        sources.read(global.thread_count(), &mut writer)?;
        let done = writer.finish()?;
        Ok((new, done))
    }
}

#[derive(Serialize)]
struct Document<'d> {
    version: u32,
    command: &'static str,
    image: &'d str,
    size: u64,
    #[serde(flatten)]
    summary: Summary,
}

/// What is the same for every size.
struct Choice {
    options: Options,
    /// Bytes of the volume, if the user says how many.
    size: Option<u64>,
    /// Nothing is left to chance and to the clock.
    fixed: bool,
    epoch: Option<Time>,
}

impl Choice {
    fn of(arguments: &Arguments, site: &Site<'_>) -> anyhow::Result<Self> {
        let chosen = arguments.layout.choose(&arguments.image)?;
        if chosen.log_device.is_some() {
            return Err(wrong("-l logdev: the log of an image that is created lies in it".into()));
        }
        let mut options = chosen.options;
        let epoch = std::env::var_os("SOURCE_DATE_EPOCH").is_some();
        let fixed = arguments.reproducible || epoch;
        let seed = arguments.layout.seed();
        options.seed = make::seed(if fixed { seed.or(Some("")) } else { seed })?;
        let epoch = if epoch { Some(make::time()?) } else { None };
        let epoch = epoch.map(|time| Time { seconds: time.seconds, nanos: time.nanoseconds });
        let image = arguments.size.or_else(|| site.size()).map(|size| size.saturating_sub(site.around()));
        let size = options.size.or(image);
        Ok(Self { options, size, fixed, epoch })
    }

    /// Of the disk and the partition in a partition table.
    fn ids(&self) -> [[u8; 16]; 2] {
        ["disk", "partition"].map(|of| make::derived(self.options.seed, of))
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

/// An empty volume where nobody sees it.
struct New {
    place: Place,
    volume: Volume,
    /// What it was opened with.
    options: xebec::Options,
}

/// What a volume is laid out by.
struct Layout<'l> {
    site: &'l Site<'l>,
    arguments: &'l Arguments,
    choice: &'l Choice,
    moment: Time,
    need: Need,
}

impl Layout<'_> {
    /// Makes the volume, larger and larger until its free blocks are enough: what its own structures take depends on
    /// its size. Each try costs some milliseconds, as all of it is holes.
    fn make(&self) -> anyhow::Result<New> {
        let options = &self.choice.options;
        let need = self.need.blocks(options.block_size, options.inode_size);
        let block_size = u64::from(options.block_size);
        let mut size = match self.choice.size {
            Some(size) => size,
            None => (need * block_size).max(SMALLEST).next_multiple_of(UNIT),
        };
        loop {
            let Some(new) = self.try_make(size)? else {
                size = (size + size / 4).next_multiple_of(UNIT);
                continue;
            };
            if self.choice.size.is_some() {
                return Ok(new);
            }
            let free = new.volume.statistics().blocks_available;
            let wanted = match self.arguments.free {
                None => need,
                Some(Free::Bytes(bytes)) => need + bytes.div_ceil(block_size),
                Some(Free::Percent(percent)) => need + size / block_size * percent / 100,
            };
            if free >= wanted {
                return Ok(new);
            }
            new.volume.unmount()?;
            // What is missing, with what the larger volume takes for itself.
            size = (size + (wanted - free) * block_size * 17 / 16).next_multiple_of(UNIT).max(size + UNIT);
        }
    }

    /// `None` where no such volume can be that small.
    fn try_make(&self, size: u64) -> anyhow::Result<Option<New>> {
        let time = Timestamp { seconds: self.moment.seconds, nanoseconds: self.moment.nanos };
        let mut options = Options { time, discard: false, ..self.choice.options.clone() };
        options.log.place = LogPlace::Internal;
        // By default a quarter of a small volume may be inodes, and a tree of small files needs more.
        let inodes = self.need.inodes * u64::from(options.inode_size);
        if options.max_inode_percent.is_none() && inodes * 8 > size {
            options.max_inode_percent = Some(100);
        }
        let place = self.site.place(size)?;
        let plan = match Plan::new(&options, size, place.volume.logical_sector_size()) {
            Err(MkfsError::Option { .. }) if self.choice.size.is_none() && size < LARGE_ENOUGH => {
                return Ok(None);
            }
            plan => plan.map_err(make::refused)?,
        };
        self.arguments.layout.expect_readable(&plan)?;
        mkfs::write(&*place.volume, None, &plan).map_err(make::refused)?;
        let options = self.options();
        let volume = Volume::open(Arc::clone(&place.volume), options.clone())
            .context("the new volume cannot be opened")?;
        Ok(Some(New { place, volume, options }))
    }

    fn options(&self) -> xebec::Options {
        let clock: Arc<dyn Clock> = match self.choice.fixed {
            true => Arc::new(FixedClock(self.moment)),
            false => Arc::new(SystemClock),
        };
        let [a, b, c, d, e, f, g, h, ..] = self.choice.options.seed;
        let cache_bytes = Some(CACHE_BYTES);
        let contents = xebec::ContentsOptions { cache_bytes, ..xebec::ContentsOptions::default() };
        xebec::Options {
            clock,
            seed: Some(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            buffer_bytes: BUFFER_BYTES,
            inodes: INODES,
            contents,
            // Nothing is left to threads whose speed would show in the volume, or to the CPU that this one is on.
            background: false,
            cpus: Some(1),
            cil_shards: Some(1),
            unrecorded: true,
            ..xebec::Options::default()
        }
    }
}
