//! `xebec extract` and `xebec tar-out`: extract files to a directory or a tar archive.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use serde_json::json;
use xebec::{Compression, Counts, Extraction, Progress as _, TransferError as Error};

use crate::args::Global;
use crate::excludes::Exclude;
use crate::image_operand::is_same_file;
use crate::interrupt;
use crate::json;
use crate::limits::allow_many_descriptors;
use crate::open::{self, Image};
use crate::operands;
use crate::output::Stdout;
use crate::progress::TransferProgress;
use crate::urls::expect_file;

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
    match to == "-" || Compression::of_name(Path::new(&to)).is_some() {
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
    expect_file(Path::new(&arguments.to), "extract writes")?;
    let excludes = arguments.exclude.patterns()?;
    let skip_unreadable = arguments.exclude.ignore_unreadable;
    let mut image = open::open(&arguments.image, global)?;
    image.messages.ignore_unreadable(skip_unreadable);
    let messages = &image.messages;
    let path = operands::path(&image.volume, arguments.path.as_bytes())?;
    let progress = TransferProgress::new(global, messages, "extracting");
    if path.iter().all(|byte| *byte == b'/') {
        progress.expect(used(&image));
    }
    let extraction = Extraction::new(&image.volume)
        .path(&path)?
        .unfinished(image.log.files_unfinished())
        .excludes(excludes)
        .skip_unreadable(skip_unreadable)
        .overwrite(arguments.overwrite)
        .wait(global.wait())
        .threads(global.thread_count())
        .progress(&progress);
    let to = Path::new(&arguments.to);
    let to_stdout = arguments.to == "-";
    let report = if to_stdout {
        anyhow::ensure!(
            !Stdout::is_terminal(),
            "refusing to write an archive to a terminal: redirect standard output"
        );
        extraction.to_writer(Stdout::raw()).map_err(|error| match error {
            // A closed pipe has its own exit code.
            Error::Output(error) => error.into(),
            error => anyhow::Error::new(error),
        })?
    } else if let Some(compression) = Compression::of_name(to).filter(|_| !to.is_dir()) {
        anyhow::ensure!(
            !is_same_file(&arguments.image, to),
            "{}: the archive would replace the image that it is extracted from",
            to.display()
        );
        interrupt::abandon(to.display());
        extraction.to_file(to, compression).map_err(|error| match error {
            Error::Exists { .. } => {
                anyhow::anyhow!("{}: already exists (--overwrite replaces it)", to.display())
            }
            // This error names the file.
            error @ Error::Open(_) => anyhow::Error::new(error),
            error => anyhow::Error::new(error).context(format!("{}: not created", to.display())),
        })?
    } else {
        allow_many_descriptors();
        extraction.to_directory(to)?
    };
    image.expect_whole("extracted");
    let seconds = progress.finish(Counts { files: report.files, bytes: report.bytes }, &report.not_preserved);
    if global.json && !to_stdout {
        let document = json!({
            "files": report.files,
            "bytes": report.bytes,
            "seconds": seconds,
            "not_kept": report.not_preserved,
            "failures": messages.failures(),
            "unreadable": messages.skipped(),
        });
        json::write("extract", messages.image(), document)?;
    }
    Ok(image.messages.finish())
}

/// Inodes and blocks in use, as an estimate of files and bytes.
fn used(image: &Image) -> Counts {
    let raw = &image.volume.superblock().raw;
    let blocks = raw.dblocks.get().saturating_sub(raw.fdblocks.get());
    Counts {
        files: raw.icount.get().saturating_sub(raw.ifree.get()),
        bytes: blocks.saturating_mul(raw.blocksize.get().into()),
    }
}
