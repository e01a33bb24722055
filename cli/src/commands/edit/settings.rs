//! `chattr`, `project`, `extsize`, `cowextsize`.

use std::ffi::OsString;

use clap::Args;
use format::inode::{FileType, flags};
use xebec::settings::xflags;
use xebec::{FileId, Metadata, Settings, Volume};

use super::{Edit, for_each_file, visit_tree};
use crate::flags::FlagChange;
use crate::sizes;

/// Files to change.
#[derive(Clone, Debug, Args)]
struct Files {
    /// Files to change.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Change directories and their contents recursively.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Files {
    /// Changes the settings of each file, if they differ.
    fn change(
        &self,
        volume: &Volume,
        report: &mut dyn FnMut(anyhow::Error),
        change: &dyn Fn(&Metadata, &mut Settings),
    ) -> anyhow::Result<()> {
        for_each_file(volume, &self.paths, report, |path| {
            let top = volume.resolve(path, false)?;
            visit_tree(volume, top, self.recursive, &mut |id: FileId, file: &Metadata| {
                let before = volume.settings(id)?;
                let mut settings = before;
                change(file, &mut settings);
                if settings == before { Ok(()) } else { volume.set_settings(id, &settings) }
            })
        });
        Ok(())
    }
}

/// Arguments of `chattr`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Flags: i immutable, a append only, A no atime updates, d no dump, S synchronous updates, x DAX, \
    P project hierarchy, n no symlinks (directories), f no defrag. The first seven are those of chattr(1), n and f \
    those of the chattr command of xfs_io.\n\n\
    Examples:\n  xebec chattr disk.xfs +i /etc/resolv.conf\n  xebec chattr -R disk.xfs -- -ia /var/log"
)]
pub struct Chattr {
    /// Flags: +, - or = and letters.
    #[arg(allow_hyphen_values = true, value_name = "FLAGS")]
    flags: FlagChange,
    #[command(flatten)]
    files: Files,
}

impl Edit for Chattr {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        self.files.change(volume, report, &|_, settings| settings.xflags = self.flags.apply(settings.xflags))
    }
}

/// Arguments of `project`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "New files inherit the project ID of their directory, and files of other projects cannot be moved \
    or linked into it. Project ID 0 is not inherited. `xebec lsattr -p` shows project IDs.\n\n\
    Examples:\n  xebec project -R disk.xfs 42 /srv/customer\n  xebec project -R disk.xfs 0 /srv/customer"
)]
pub struct Project {
    /// Project ID.
    #[arg(value_name = "ID", value_parser = parse_project)]
    project: u32,
    #[command(flatten)]
    files: Files,
}

fn parse_project(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a project ID is a number up to {}", u32::MAX))
}

impl Edit for Project {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        self.files.change(volume, report, &|file, settings| {
            settings.project = self.project;
            if file.file_type == FileType::Directory {
                set(settings, flags::PROJINHERIT.into(), self.project != 0);
            }
        })
    }
}

/// An extent size hint.
#[derive(Clone, Debug, Args)]
struct Hint {
    /// Extent size in bytes, a multiple of the block size; 0 clears the hint; suffixes k, m, g.
    #[arg(value_name = "SIZE", value_parser = sizes::parse)]
    size: u64,
    #[command(flatten)]
    files: Files,
}

impl Hint {
    /// Sets the hint; with `-R`, files that cannot have one are skipped.
    fn set(
        &self,
        volume: &Volume,
        report: &mut dyn FnMut(anyhow::Error),
        set: &dyn Fn(&Metadata, &mut Settings, u32),
    ) -> anyhow::Result<()> {
        let Ok(size) = u32::try_from(self.size) else {
            anyhow::bail!("an extent size hint must be less than 4 GiB");
        };
        self.files.change(volume, report, &|file, settings| {
            let can_have_hint = match file.file_type {
                FileType::Directory => true,
                FileType::Regular => file.blocks == 0,
                _ => false,
            };
            if can_have_hint || !self.files.recursive {
                set(file, settings, size);
            }
        })
    }
}

/// Arguments of `extsize`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Space of the file is allocated in multiples of the hint. The hint can be set only while a file \
    has no blocks; new files inherit that of their directory. With -R, files that have blocks are skipped.\n\n\
    Examples:\n  xebec extsize disk.xfs 1m /srv/images\n  xebec extsize disk.xfs 0 /srv/images"
)]
pub struct Extsize {
    #[command(flatten)]
    hint: Hint,
}

impl Edit for Extsize {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        self.hint.set(volume, report, &|file, settings, size| {
            let inherits = file.file_type == FileType::Directory;
            let bit = if inherits { flags::EXTSZINHERIT } else { flags::EXTSIZE };
            set(settings, bit.into(), size != 0);
            settings.extsize = size;
        })
    }
}

/// Arguments of `cowextsize`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Space for copy-on-write is allocated in multiples of the hint. New files inherit the hint of \
    their directory. With -R, files that have blocks are skipped.\n\n\
    Examples:\n  xebec cowextsize disk.xfs 128k /srv/images/vm1.qcow2"
)]
pub struct Cowextsize {
    #[command(flatten)]
    hint: Hint,
}

impl Edit for Cowextsize {
    fn perform(&self, volume: &Volume, report: &mut dyn FnMut(anyhow::Error)) -> anyhow::Result<()> {
        self.hint.set(volume, report, &|_, settings, size| {
            set(settings, xflags::COWEXTSIZE, size != 0);
            settings.cowextsize = size;
        })
    }
}

fn set(settings: &mut Settings, bit: u32, on: bool) {
    settings.xflags = if on { settings.xflags | bit } else { settings.xflags & !bit };
}
