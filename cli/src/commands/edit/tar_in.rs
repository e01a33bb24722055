//! `tar-in`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use anyhow::{Error, anyhow, bail};
use clap::Args;
use xebec::{Archive, FileId, Notice, Overrides, Progress, Source, Volume, Writer};

use super::Edit;
use crate::commands::create::Whiteouts;
use crate::commands::create::overrides::labels;
use crate::excludes::{Exclude, skipped};
use crate::failure::AtPath;
use crate::output::{Level, print_message};

/// Arguments of `tar-in`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The archive may be compressed with gzip, zstd, xz or bzip2. Owners, modes, times and attributes \
    are preserved. Files replace existing ones; directories are merged.\n\n\
    Examples:\n  xebec tar-in disk.xfs update.tar.zst\n  tar c -C build . | xebec tar-in disk.xfs - /srv/www\n  \
    xebec tar-in root.xfs layer3.tar --whiteouts oci\n  xebec tar-in disk.xfs damaged.tar --ignore-unreadable\n\n\
    With --ignore-unreadable, members behind the point where the archive is damaged or truncated are skipped.\n\n\
    Exit codes: 0 success; 1 failure, files extracted so far are kept; 2 usage error."
)]
pub struct TarIn {
    /// Tar archive; - for standard input.
    #[arg(value_name = "FILE.tar|-")]
    archive: OsString,
    /// Target directory in the volume.
    #[arg(value_name = "DIR", default_value = "/")]
    dir: OsString,
    /// Format of whiteouts: members that remove files.
    #[arg(long, value_name = "KIND")]
    whiteouts: Option<Whiteouts>,
    /// Set SELinux labels from a file_contexts file, as in setfiles(8): EXPRESSION [TYPE] CONTEXT. Paths are relative
    /// to DIR.
    #[arg(long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,
    #[command(flatten)]
    exclude: Exclude,
}

impl Edit for TarIn {
    fn perform(&self, volume: &Volume, _: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        self.take_in(volume)
    }

    fn reads_standard_input(&self) -> bool {
        self.archive == "-"
    }
}

impl TarIn {
    fn take_in(&self, volume: &Volume) -> anyhow::Result<()> {
        let archive = match self.reads_standard_input() {
            false => Archive::new(&self.archive),
            true if self.whiteouts.is_some() => bail!("--whiteouts reads the archive twice: name a file"),
            true => Archive::from_reader("standard input", io::stdin()),
        };
        let mut overrides = Overrides::default();
        overrides.labels = self.file_contexts.as_deref().map(labels).transpose()?;
        let dir = self.dir.as_bytes();
        let root =
            volume.resolve(dir, true).map_err(|error| Error::new(error).context(AtPath(dir.to_vec())))?;
        take_in(
            volume,
            root,
            &archive.whiteouts(self.whiteouts.is_some()).excludes(self.exclude.patterns()?),
            overrides,
            self.exclude.ignore_unreadable,
        )
    }
}

/// Prints warnings about skipped files.
struct Warnings;

impl Progress for Warnings {
    fn notice(&self, notice: &Notice) {
        print_message(Level::Warning, "", skipped(notice));
    }
}

fn take_in(
    volume: &Volume,
    root: FileId,
    source: &dyn Source,
    overrides: Overrides,
    ignores_unreadable: bool,
) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut writer =
        Writer::new(volume, root, overrides).skip_unreadable(ignores_unreadable).progress(&Warnings);
    if let Err(error) = source.read(true, threads, &mut writer) {
        writer.abort();
        return Err(error.into());
    }
    let done = writer.finish()?;
    let lost: Vec<_> = done.lost.iter().map(|(lost, count)| format!("{count} {}", lost.name())).collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("not kept: {}", lost.join(", "))),
    }
}
