//! Whole trees into a volume: `tar-in`.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use anyhow::{Error, anyhow, bail};
use base::Ino;
use clap::Args;
use import::{Archive, Overrides, Source, Writer};
use xebec::Volume;

use super::{Edit, bytes};
use crate::commands::create::Whiteouts;
use crate::excludes::Exclude;
use crate::failure::At;

/// Arguments of `tar-in`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The archive may be compressed by gzip, zstd or xz. Its members keep their owners, modes, times and \
    attributes; a file replaces what has its name, a directory joins with one.\n\n\
    Examples:\n  xebec tar-in disk.xfs update.tar.zst\n  tar c -C build . | xebec tar-in disk.xfs - /srv/www\n  \
    xebec tar-in root.xfs layer3.tar --whiteouts oci\n\n\
    Exit codes: 0 done; 1 something failed: what was taken in before stays; 2 wrong usage."
)]
pub struct TarIn {
    /// A tar archive, or - for one on standard input.
    #[arg(value_name = "FILE.tar|-")]
    archive: OsString,
    /// The directory of the volume that it goes to.
    #[arg(value_name = "DIR", default_value = "/")]
    dir: OsString,
    /// How the archive says what is to be taken away.
    #[arg(long, value_name = "KIND")]
    whiteouts: Option<Whiteouts>,
    #[command(flatten)]
    exclude: Exclude,
}

impl Edit for TarIn {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        if let Err(error) = self.take_in(volume) {
            tell(error);
        }
    }
}

impl TarIn {
    /// Whether it takes the archive from standard input, which a session reads its commands from.
    pub fn reads_standard_input(&self) -> bool {
        self.archive == "-"
    }

    fn take_in(&self, volume: &Volume) -> anyhow::Result<()> {
        let archive = match self.reads_standard_input() {
            false => Archive::new(Path::new(&self.archive)),
            true if self.whiteouts.is_some() => bail!("--whiteouts: the archive is read twice: name a file"),
            true => Archive::once(Path::new("standard input"), Box::new(io::stdin())),
        };
        let dir = bytes(&self.dir);
        let root = volume.resolve(dir, true).map_err(|error| Error::new(error).context(At(dir.to_vec())))?;
        take_in(
            volume,
            root,
            &archive.whiteouts(self.whiteouts.is_some()).excludes(&self.exclude.patterns()?),
            Overrides::default(),
        )
    }
}

fn take_in(volume: &Volume, root: Ino, source: &dyn Source, overrides: Overrides) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut writer = Writer::new(volume, root, overrides);
    source.read(true, threads, &mut writer)?;
    let done = writer.finish()?;
    let lost: Vec<_> = done.lost.iter().map(|(lost, count)| format!("{count} {}", lost.name())).collect();
    match lost.is_empty() {
        true => Ok(()),
        false => Err(anyhow!("not kept: {}", lost.join(", "))),
    }
}
