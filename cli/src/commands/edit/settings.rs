//! `chattr`, `project`, `extsize`, `cowextsize`.

use std::ffi::OsString;

use base::Ino;
use clap::Args;
use format::inode::{FileType, flags};
use xebec::settings::xflags;
use xebec::{Metadata, Settings, Volume};

use super::{Edit, each, tree};
use crate::flags::Change;
use crate::sizes;

/// Whose settings.
#[derive(Clone, Debug, Args)]
struct Files {
    /// What to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Everything below, too.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Files {
    /// Changes the settings of each file; those that stay as they are cost nothing.
    fn change(
        &self,
        volume: &Volume,
        tell: &mut dyn FnMut(anyhow::Error),
        change: &dyn Fn(&Metadata, &mut Settings),
    ) {
        each(volume, &self.paths, tell, |path| {
            let top = volume.resolve(path, false)?;
            tree(volume, top, self.recursive, &mut |ino: Ino, file: &Metadata| {
                let before = volume.settings(ino)?;
                let mut settings = before;
                change(file, &mut settings);
                if settings == before { Ok(()) } else { volume.set_settings(ino, &settings) }
            })
        });
    }
}

/// Arguments of `chattr`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Letters: i immutable, a append only, A no access times, d not dumped, S written at once, x accessed \
    without a cache, P new files take over the project, n no symbolic links (directories), f not defragmented. The \
    first seven are those of chattr, n and f those of xfs_io.\n\n\
    Examples:\n  xebec chattr disk.xfs +i /etc/resolv.conf\n  xebec chattr -R disk.xfs -- -ia /var/log"
)]
pub struct Chattr {
    /// The change: +, - or = and letters.
    #[arg(allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Change,
    /// Whose flags.
    #[command(flatten)]
    files: Files,
}

impl Edit for Chattr {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        self.files.change(volume, tell, &|_, settings| settings.xflags = self.flags.apply(settings.xflags));
    }
}

/// Arguments of `project`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A directory hands its project down to what is made in it, and takes in no files of other \
    projects. Project 0 is none, and is not handed down. `xebec lsattr -p` shows projects.\n\n\
    Examples:\n  xebec project -R disk.xfs 42 /srv/customer\n  xebec project -R disk.xfs 0 /srv/customer"
)]
pub struct Project {
    /// The project, by number.
    #[arg(value_name = "ID", value_parser = parse_project)]
    project: u32,
    /// Whose project.
    #[command(flatten)]
    files: Files,
}

fn parse_project(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a project is a number up to {}", u32::MAX))
}

impl Edit for Project {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        self.files.change(volume, tell, &|file, settings| {
            settings.project = self.project;
            if file.file_type == FileType::Directory {
                set(settings, flags::PROJINHERIT.into(), self.project != 0);
            }
        });
    }
}

/// A hint for the size of extents.
#[derive(Clone, Debug, Args)]
struct Hint {
    /// In bytes: whole blocks; 0 for none; suffixes k, m, g.
    #[arg(value_name = "SIZE", value_parser = sizes::parse)]
    size: u64,
    /// Whose hint.
    #[command(flatten)]
    files: Files,
}

impl Hint {
    /// Sets a hint where there can be one: what else lies below a directory is left alone.
    fn set(
        &self,
        volume: &Volume,
        tell: &mut dyn FnMut(anyhow::Error),
        set: &dyn Fn(&Metadata, &mut Settings, u32),
    ) {
        let Ok(size) = u32::try_from(self.size) else {
            return tell(anyhow::anyhow!("a hint is less than 4 GiB"));
        };
        self.files.change(volume, tell, &|file, settings| {
            let able = match file.file_type {
                FileType::Directory => true,
                FileType::Regular => file.blocks == 0,
                _ => false,
            };
            if able || !self.files.recursive {
                set(file, settings, size);
            }
        });
    }
}

/// Arguments of `extsize`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Space is then allocated to the file in pieces of this size. A file must not have blocks yet; a \
    directory hands its hint down to what is made in it. With -R, files that have blocks are left alone.\n\n\
    Examples:\n  xebec extsize disk.xfs 1m /srv/images\n  xebec extsize disk.xfs 0 /srv/images"
)]
pub struct Extsize {
    /// The hint.
    #[command(flatten)]
    hint: Hint,
}

impl Edit for Extsize {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        self.hint.set(volume, tell, &|file, settings, size| {
            let inherits = file.file_type == FileType::Directory;
            let bit = if inherits { flags::EXTSZINHERIT } else { flags::EXTSIZE };
            set(settings, bit.into(), size != 0);
            settings.extsize = size;
        });
    }
}

/// Arguments of `cowextsize`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "What is copied on write is then allocated in pieces of this size. A directory hands its hint down \
    to what is made in it. With -R, files that have blocks are left alone.\n\n\
    Examples:\n  xebec cowextsize disk.xfs 128k /srv/images/vm1.qcow2"
)]
pub struct Cowextsize {
    /// The hint.
    #[command(flatten)]
    hint: Hint,
}

impl Edit for Cowextsize {
    fn perform(&self, volume: &Volume, tell: &mut dyn FnMut(anyhow::Error)) {
        self.hint.set(volume, tell, &|_, settings, size| {
            set(settings, xflags::COWEXTSIZE, size != 0);
            settings.cowextsize = size;
        });
    }
}

fn set(settings: &mut Settings, bit: u32, on: bool) {
    settings.xflags = if on { settings.xflags | bit } else { settings.xflags & !bit };
}
