//! `xebec du`: shows the space of files and directories as GNU `du` does.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;

use base::Ino;
use base::pipeline::{self, PipelineItem, PipelineSink};
use clap::Args;
use read::{FinalSymlink, resolve};
use serde::Serialize;
use serde_json::json;
use xebec::{Counts, Progress as _};

use super::shared::{CountedBlocks, SharedExtents};
use super::walk::{FileUsage, SizeEvent, SizeTask, SizeWalk, SizedFile};
use crate::args::Global;
use crate::commands::Show;
use crate::failure::Failure;
use crate::json::{self, JsonName};
use crate::names::Quoting;
use crate::open::Image;
use crate::output::Stdout;
use crate::progress::TransferProgress;
use crate::sizes;
use crate::walk::{TextSink, WalkOutput};

/// Arguments of `du`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Sizes are those on disk, in KiB unless an option says otherwise. A file with several hard links \
    is counted once, with its first name. Blocks that files share by reflink are counted for each of them, as by \
    GNU du; with --unique, only for the first. Directories are listed after their contents, by the bytes of their \
    names.\n\n\
    Examples:\n  xebec du -sh disk.xfs '/home/*'      # one line for each home directory\n  \
    xebec du -hd1 disk.xfs | sort -h      # the largest directory last\n  \
    xebec du -s --unique disk.xfs /images # what removing all of them would free\n  \
    xebec du --inodes -d2 disk.xfs        # where the many small files are\n\n\
    Exit codes: 0 success; 1 a file could not be read; 2 usage error."
)]
pub struct Arguments {
    /// Files and directories.
    #[arg(default_value = "/")]
    paths: Vec<OsString>,
    /// List files, too, not only directories.
    #[arg(short, long, conflicts_with = "summarize")]
    all: bool,
    /// List the operands only, as with --max-depth 0.
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,
    /// List directories up to N levels below the operands.
    #[arg(short = 'd', long, value_name = "N")]
    max_depth: Option<usize>,
    /// Show the total of all operands, too.
    #[arg(short = 'c', long)]
    total: bool,
    /// Show sizes with suffixes K, M, G.
    #[arg(short, long)]
    human_readable: bool,
    /// Show the sizes of files as `ls -l` does, instead of their blocks. Directories and devices have none.
    #[arg(long)]
    apparent_size: bool,
    /// Show sizes in bytes: --apparent-size --block-size 1.
    #[arg(short, long)]
    bytes: bool,
    /// Show sizes in units of this many bytes, rounded up.
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = sizes::parse)]
    block_size: Option<u64>,
    /// Show sizes in KiB (the default).
    #[arg(short, overrides_with_all = ["mebibytes", "block_size"])]
    kibibytes: bool,
    /// Show sizes in MiB.
    #[arg(short, overrides_with_all = ["kibibytes", "block_size"])]
    mebibytes: bool,
    /// Show the number of files instead of sizes.
    #[arg(long, conflicts_with_all = ["apparent_size", "bytes"])]
    inodes: bool,
    /// Count blocks that files share by reflink once, with the first of the files.
    #[arg(long, conflicts_with_all = ["apparent_size", "bytes", "inodes"])]
    unique: bool,
    /// Count a file with each of its hard links, and an operand each time that it is named.
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Do not add the size of subdirectories to that of a directory.
    #[arg(short = 'S', long)]
    separate_dirs: bool,
    /// End lines with NUL instead of a newline, and do not quote names.
    #[arg(short = '0', long)]
    null: bool,
    /// Accepted and ignored: a volume has no other file systems in it.
    #[arg(short = 'x', long)]
    one_file_system: bool,
}

/// How numbers are shown.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Human,
    /// In units of this many bytes.
    Bytes(u64),
    Inodes,
}

impl Arguments {
    fn unit(&self) -> Unit {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        match (self.inodes, self.human_readable, self.block_size) {
            (true, ..) => Unit::Inodes,
            (_, true, _) => Unit::Human,
            (.., Some(bytes)) => Unit::Bytes(bytes.max(1)),
            _ if self.mebibytes => Unit::Bytes(MIB),
            _ if self.bytes && !self.kibibytes => Unit::Bytes(1),
            _ => Unit::Bytes(KIB),
        }
    }

    fn depth_max(&self) -> usize {
        if self.summarize { 0 } else { self.max_depth.unwrap_or(usize::MAX) }
    }
}

impl Show for Arguments {
    fn show(&self, image: &Image, global: &Global) -> anyhow::Result<()> {
        let shared = self.unique.then(|| SharedExtents::of(&image.volume)).transpose()?;
        let mut operands = Vec::new();
        for path in image.paths(&self.paths) {
            match resolve(&image.volume, &path, FinalSymlink::Keep) {
                Ok(inode) => operands.push((path, inode.ino())),
                Err(error) => image.messages.fail(Failure::naming(&path, &error)),
            }
        }
        let has_several = operands.len() > 1;
        let (walk, tasks) = SizeWalk::new(&image.volume, operands, self.all, shared.as_ref());
        let skip = if global.json { json::SEPARATOR.len() } else { 0 };
        let mut out = TextSink::new(&image.messages, skip);
        if global.json {
            let head = json!({ "unique": self.unique });
            out.write(&json::begin("du", image.messages.image(), head, "entries"))?;
        }
        // A bar would be between the lines.
        let is_quiet = global.quiet || Stdout::is_terminal() && self.depth_max() > 0;
        let bar = Global { quiet: is_quiet, ..global.clone() };
        let progress = TransferProgress::new(&bar, &image.messages, "adding up sizes");
        let mut totals = Totals {
            arguments: self,
            unit: self.unit(),
            json: global.json,
            quoting: Quoting::for_stdout(),
            block_bytes: image.volume.geometry().block_size.into(),
            skips_repeated: has_several && !self.count_links,
            counted: HashSet::new(),
            counted_blocks: CountedBlocks::default(),
            levels: Vec::new(),
            total: FileUsage::default(),
            progress: &progress,
            out,
        };
        pipeline::run(&walk, tasks, &mut totals, global.thread_count())?;
        progress.clear();
        totals.finish()?;
        Ok(())
    }
}

/// A directory that was entered.
#[derive(Debug, Default)]
struct Level {
    path: Vec<u8>,
    /// Itself and its files.
    own: FileUsage,
    /// With its subdirectories.
    all: FileUsage,
    /// It was counted before, and is left out with everything in it.
    is_repeated: bool,
}

/// Adds up sizes, and writes lines.
struct Totals<'d> {
    arguments: &'d Arguments,
    unit: Unit,
    json: bool,
    quoting: Quoting,
    block_bytes: u64,
    /// Directories of several operands may repeat, too.
    skips_repeated: bool,
    /// Files that may appear again.
    counted: HashSet<Ino>,
    counted_blocks: CountedBlocks,
    levels: Vec<Level>,
    total: FileUsage,
    progress: &'d TransferProgress<'d>,
    out: TextSink<'d>,
}

impl Totals<'_> {
    fn enter(&mut self, path: Vec<u8>, ino: Ino, usage: FileUsage) {
        let in_repeated = self.levels.last().is_some_and(|level| level.is_repeated);
        let is_repeated = in_repeated || self.skips_repeated && !self.counted.insert(ino);
        self.levels.push(Level { path, own: usage, all: usage, is_repeated });
    }

    fn leave(&mut self) -> io::Result<()> {
        let Some(level) = self.levels.pop().filter(|level| !level.is_repeated) else { return Ok(()) };
        match self.levels.last_mut() {
            Some(above) => above.all += level.all,
            None => self.total += level.all,
        }
        if self.levels.len() <= self.arguments.depth_max() {
            self.write(&level.path, if self.arguments.separate_dirs { level.own } else { level.all })?;
        }
        Ok(())
    }

    fn file(&mut self, file: SizedFile) -> io::Result<()> {
        if self.levels.last().is_some_and(|level| level.is_repeated) {
            return Ok(());
        }
        let is_counted = |ino| !self.counted.insert(ino);
        if !self.arguments.count_links && file.ino.is_some_and(is_counted) {
            return Ok(());
        }
        let mut usage = file.usage;
        usage.allocated = usage.allocated.saturating_sub(self.repeated_bytes(&file));
        match self.levels.last_mut() {
            Some(level) => {
                level.own += usage;
                level.all += usage;
            }
            None => self.total += usage,
        }
        match &file.path {
            Some(path) if self.levels.len() <= self.arguments.depth_max() => self.write(path, usage),
            _ => Ok(()),
        }
    }

    /// Bytes of shared blocks that other files have had counted.
    fn repeated_bytes(&mut self, file: &SizedFile) -> u64 {
        let blocks = file.shared.iter().map(|shared| self.counted_blocks.add(shared.clone())).sum::<u64>();
        blocks * self.block_bytes
    }

    fn write(&mut self, path: &[u8], usage: FileUsage) -> io::Result<()> {
        let mut line = Vec::new();
        if self.json {
            line.extend_from_slice(json::SEPARATOR);
            line.extend_from_slice(json::object(&Entry::new(Some(path), usage)).as_bytes());
        } else {
            line.extend_from_slice(self.number(usage).as_bytes());
            line.push(b'\t');
            if self.arguments.null {
                line.extend_from_slice(path);
            } else {
                self.quoting.push(&mut line, path);
            }
            line.push(if self.arguments.null { 0 } else { b'\n' });
        }
        self.out.write_output(WalkOutput::Text(line))
    }

    fn number(&self, usage: FileUsage) -> String {
        let is_apparent = self.arguments.apparent_size || self.arguments.bytes;
        let bytes = if is_apparent { usage.apparent } else { usage.allocated };
        match self.unit {
            Unit::Inodes => usage.inodes.to_string(),
            Unit::Human => sizes::human(bytes),
            Unit::Bytes(unit) => bytes.div_ceil(unit).to_string(),
        }
    }

    fn finish(mut self) -> io::Result<()> {
        if self.json {
            self.out.write(&json::end(json!({ "total": Entry::new(None, self.total) })))?;
        } else if self.arguments.total {
            let end = if self.arguments.null { '\0' } else { '\n' };
            let line = format!("{}\ttotal{end}", self.number(self.total));
            self.out.write(line.as_bytes())?;
        }
        self.out.flush()
    }
}

impl PipelineSink<SizeWalk<'_>> for Totals<'_> {
    type Error = io::Error;

    fn take(&mut self, event: SizeEvent, _: &mut Vec<PipelineItem<SizeTask, SizeEvent>>) -> io::Result<()> {
        match event {
            SizeEvent::Enter { path, ino, usage } => self.enter(path, ino, usage),
            SizeEvent::Files(files) => files.into_iter().try_for_each(|file| self.file(file))?,
            SizeEvent::Leave => {
                self.leave()?;
                let sum = self.levels.iter().fold(self.total, |mut sum, level| {
                    sum += level.all;
                    sum
                });
                self.progress.advance(Counts { files: sum.inodes, bytes: sum.allocated });
            }
            SizeEvent::Failed(failure) => self.out.write_output(WalkOutput::Failure(failure))?,
        }
        Ok(())
    }
}

/// An entry in JSON.
#[derive(Debug, Serialize)]
struct Entry<'e> {
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    path: Option<JsonName<'e>>,
    allocated: u64,
    apparent: u64,
    inodes: u64,
}

impl<'e> Entry<'e> {
    fn new(path: Option<&'e [u8]>, usage: FileUsage) -> Self {
        let FileUsage { allocated, apparent, inodes } = usage;
        Self { path: path.map(|path| JsonName("path", path)), allocated, apparent, inodes }
    }
}
