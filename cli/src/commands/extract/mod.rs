//! `xebec extract`: files out of an image, into a directory or a tar archive, with all their metadata.
//!
//! | part | does |
//! |---|---|
//! | [`source`] | what is taken out of the image |
//! | [`archive`], [`contents`], [`pax`], [`compress`] | into a stream of tar members |
//! | [`tree`], [`place`], [`flags`] | into a directory of this machine |
//! | [`progress`] | how far it is, and what could not be kept |

mod archive;
mod compress;
mod contents;
mod flags;
mod pax;
mod place;
mod progress;
mod source;
mod tree;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use block::Replaced;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use format::inode::FileType;
use read::{Last, resolve};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use transfer::Excludes;

use crate::args::Global;
use crate::excludes::Exclude;
use crate::json;
use crate::names::quoted;
use crate::open::{self, Image};
use crate::operands;
use crate::output::Stdout;
use crate::walk::Visited;
use archive::{Archive, ArchiveSink, Buffers};
use base::pipeline;
use compress::{Compressed, Compression};
use place::{Place, Rights};
use progress::{Progress, Summary};
use source::Subject;
pub use source::{Facts, Runs, is_safe};
use tree::{Tree, TreeSink};

/// Arguments of `extract`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The contents of PATH are extracted to DIR or to the archive; DIR gets the mode and times of \
    PATH. Owners, modes, times in nanoseconds, extended attributes, ACLs, project IDs, flags (in DIR only), hard \
    links, devices, extent size hints and holes are preserved. Nothing is written outside of DIR. Without root, \
    owners and devices cannot be created: a summary lists what was not preserved.\n\n\
    Archives have the POSIX (pax) format, with extended attributes and holes as in GNU tar. To extract them: tar \
    --xattrs --xattrs-include='*' -xpf FILE.tar.\n\n\
    Examples:\n  xebec extract disk.xfs --to out/\n  xebec extract disk.xfs /home --to home.tar.zst\n  \
    xebec extract disk.xfs --to - | zstd > disk.tar.zst\n  \
    xebec extract disk.xfs --to out/ --exclude '*.o' --exclude /var/cache/\n  \
    xebec extract damaged.xfs --to rescued/ --ignore-unreadable\n\n\
    With --ignore-unreadable, files for an archive are read twice, as unreadable ones must be skipped before their \
    header is written.\n\n\
    Exit codes: 0 success; 1 a file could not be read (without --ignore-unreadable) or created, or the log was \
    replayed partially; 2 usage error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Directory or file to extract.
    #[arg(default_value = "/")]
    path: OsString,
    /// Target: a directory; an archive, compressed according to its suffix .tar, .tar.gz, .tgz, .gz, .tar.zst, .zst,
    /// .tar.xz, .xz, .tar.bz2 or .bz2; or - for a tar archive on standard output.
    #[arg(long, value_name = "DIR|FILE.tar|-")]
    to: OsString,
    /// Overwrite existing files.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    exclude: Exclude,
}

/// Arguments of `tar-out`: `extract` to an archive.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  xebec tar-out disk.xfs | zstd > disk.tar.zst\n  \
    xebec tar-out disk.xfs /etc | tar t\n  \
    xebec tar-out disk.xfs --to disk.tar.xz\n  \
    xebec tar-out disk.xfs --exclude /proc --exclude /sys > disk.tar\n\n\
    Exit codes: 0 success; 1 a file could not be read (without --ignore-unreadable), or the log was replayed \
    partially; 2 usage error.")]
pub struct TarOut {
    /// The image.
    pub image: PathBuf,
    /// Directory or file to extract.
    #[arg(default_value = "/")]
    path: OsString,
    /// Archive, compressed according to its suffix .tar, .tar.gz, .tgz, .tar.zst, .tar.xz or .tar.bz2; or - for
    /// standard output.
    #[arg(long, value_name = "FILE.tar|-", default_value = "-")]
    #[arg(value_parser = OsStringValueParser::new().try_map(archive_name))]
    to: OsString,
    /// Overwrite existing files.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    exclude: Exclude,
}

/// The target of `tar-out` must have the suffix of an archive.
fn archive_name(to: OsString) -> Result<OsString, String> {
    match to == "-" || Compression::of(Path::new(&to)).is_some() {
        true => Ok(to),
        false => Err("unknown suffix: expected .tar, .tar.gz, .tar.zst, .tar.xz or .tar.bz2".into()),
    }
}

impl From<TarOut> for Arguments {
    fn from(TarOut { image, path, to, overwrite, exclude }: TarOut) -> Self {
        Self { image, path, to, overwrite, exclude }
    }
}

/// Runs `extract`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let excludes = arguments.exclude.patterns()?;
    let mut image = open::open(&arguments.image, global)?;
    image.messages.ignore_unreadable(arguments.exclude.ignore_unreadable);
    let subject = subject(&image, &arguments.path, Last::Keep)?;
    // How many files there are is only known for the whole image.
    let raw = &image.volume.superblock().raw;
    let whole = subject.ino == image.volume.root();
    let progress = Progress::new(global, whole.then(|| raw.icount.get().saturating_sub(raw.ifree.get())));
    let job = Job { image: &image, subject, progress, excludes, threads: global.thread_count() };
    let to = Path::new(&arguments.to);
    let to_stdout = arguments.to == "-";
    let summary = if to_stdout {
        anyhow::ensure!(
            !Stdout::is_terminal(),
            "refusing to write an archive to a terminal: redirect standard output"
        );
        job.archive(Stdout::raw())?.1
    } else if let Some(compression) = Compression::of(to).filter(|_| !to.is_dir()) {
        job.archive_file(to, compression, arguments.overwrite)?
    } else {
        job.directory(to, arguments.overwrite)?
    };
    if global.json && !to_stdout {
        json::write("extract", image.messages.image(), summary)?;
    }
    Ok(image.messages.finish())
}

fn subject(image: &Image, path: &OsStr, last: Last) -> anyhow::Result<Subject> {
    let path = operands::path(&image.volume, path.as_bytes())?;
    let inode = resolve(&image.volume, &path, last)?;
    let name = path.rsplit(|byte| *byte == b'/').find(|name| !name.is_empty()).unwrap_or_default();
    let is_directory = inode.dinode().file_type() == Some(FileType::Directory);
    anyhow::ensure!(is_directory || source::is_safe(name), "{}: name the file itself", quoted(&path));
    Ok(Subject { ino: inode.ino(), name: name.to_vec() })
}

/// One extraction.
struct Job<'j> {
    image: &'j Image,
    subject: Subject,
    progress: Progress,
    excludes: Arc<Excludes>,
    threads: usize,
}

impl Job<'_> {
    fn archive<O: Write + Send>(&self, out: O) -> anyhow::Result<(O, Summary)> {
        let buffers = Buffers::default();
        let (volume, messages, progress) = (&self.image.volume, &self.image.messages, &self.progress);
        let work = Archive {
            volume,
            progress,
            buffers: &buffers,
            visited: Visited::default(),
            excludes: Arc::clone(&self.excludes),
            verifies: messages.ignores_unreadable(),
            unfinished: self.image.log.files_unfinished(),
        };
        let mut sink =
            ArchiveSink { out, written: 0, seen: HashMap::new(), buffers: &buffers, progress, messages };
        pipeline::run(&work, vec![archive::Task::Subject(self.subject.clone())], &mut sink, self.threads)?;
        let out = sink.finish()?;
        self.image.expect_whole("extracted");
        Ok((out, progress.finish(messages)))
    }

    /// Under another name until it is complete, so that no half archive is taken for a whole one.
    fn archive_file(&self, to: &Path, compression: Compression, overwrite: bool) -> anyhow::Result<Summary> {
        let exists = to.symlink_metadata().is_ok();
        anyhow::ensure!(
            overwrite || !exists,
            "{}: it exists already (--overwrite replaces it)",
            to.display()
        );
        // Nothing is replaced that somebody writes to.
        let claim = exists.then(|| Replaced::claim(to, None)).transpose()?;
        let mut name = to.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.part", std::process::id()));
        let part = to.with_file_name(name);
        let file = File::create_new(&part).with_context(|| format!("{}: cannot make it", part.display()))?;
        let done = self.archive(Compressed::new(file, compression)?).and_then(|(out, summary)| {
            out.finish()?;
            claim.as_ref().map_or(Ok(()), Replaced::renew)?;
            std::fs::rename(&part, to).with_context(|| format!("{}: cannot rename it", part.display()))?;
            Ok(summary)
        });
        if done.is_err() {
            // The error that led here says more than one about the remains.
            let _ = std::fs::remove_file(&part);
        }
        done.with_context(|| format!("{}: not made", to.display()))
    }

    fn directory(&self, to: &Path, overwrite: bool) -> anyhow::Result<Summary> {
        match std::fs::create_dir(to) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("{}: cannot make it", to.display()))?,
        }
        // What the user named may be a link: it is followed here, and nowhere else.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(to, flags, Mode::empty())
            .with_context(|| format!("{}: cannot open it", to.display()))?;
        allow_many_descriptors();
        let root = Arc::new(Place { fd, path: Vec::new() });
        let rights = Rights::new(overwrite);
        let (volume, messages, progress) = (&self.image.volume, &self.image.messages, &self.progress);
        let work = Tree {
            volume,
            progress,
            rights,
            visited: Visited::default(),
            excludes: Arc::clone(&self.excludes),
            leaves_out: messages.ignores_unreadable(),
            unfinished: self.image.log.files_unfinished(),
        };
        let mut sink =
            TreeSink { root: root.clone(), seen: HashMap::new(), last: None, rights, progress, messages };
        let task = tree::Task::Subject(self.subject.clone(), root);
        pipeline::run(&work, vec![task], &mut sink, self.threads)?;
        self.image.expect_whole("extracted");
        Ok(progress.finish(messages))
    }
}

/// Every directory on the way down is open, so as many descriptors as the system allows.
pub fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, very deep trees fail with their own message.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
