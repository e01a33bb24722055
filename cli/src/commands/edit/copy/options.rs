//! Options of `cp`, as in GNU cp.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use crate::excludes::Exclude;

use xebec::{CopyInto, CopyRules, Follow, Preserve};

/// Options of `cp`.
#[derive(Clone, Debug, Args)]
pub struct CopyOptions {
    /// Copy files within the volume, sharing blocks if possible.
    #[arg(long)]
    pub within: bool,
    /// Copy directories recursively; copy pipes and devices as such.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Same as -r -d --preserve=all.
    #[arg(short, long)]
    archive: bool,
    /// Same as --preserve=mode,ownership,timestamps.
    #[arg(short = 'p')]
    preserve_default: bool,
    /// Preserve these attributes (default: mode,ownership,timestamps).
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_values = ["mode", "ownership", "timestamps"]
    )]
    preserve: Vec<Attribute>,
    /// Do not preserve these attributes.
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    no_preserve: Vec<Attribute>,
    /// Same as -P --preserve=links.
    #[arg(short = 'd')]
    links: bool,
    /// Never follow symbolic links.
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "follow_arguments"])]
    no_dereference: bool,
    /// Always follow symbolic links.
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_arguments"])]
    dereference: bool,
    /// Follow symbolic links on the command line.
    #[arg(short = 'H', overrides_with_all = ["no_dereference", "dereference"])]
    follow_arguments: bool,
    /// Do not overwrite existing files.
    #[arg(short, long)]
    no_clobber: bool,
    /// Overwrite existing files only if the source is newer.
    #[arg(short, long)]
    update: bool,
    /// Remove existing files that cannot be opened, and try again.
    #[arg(short, long)]
    force: bool,
    /// Remove each existing file before creating it.
    #[arg(long)]
    remove_destination: bool,
    /// Copy all sources into this directory.
    #[arg(
        short = 't',
        long = "target-directory",
        value_name = "DIR",
        conflicts_with = "no_target_directory"
    )]
    pub into: Option<OsString>,
    /// Treat the target as a normal file, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    #[command(flatten)]
    pub exclude: Exclude,
}

/// An attribute to preserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Attribute {
    /// Permissions and ACLs.
    Mode,
    /// Owner and group.
    Ownership,
    /// Access and modification times.
    Timestamps,
    /// Hard links.
    Links,
    /// SELinux labels (extended attributes).
    Context,
    /// Extended attributes, including capabilities.
    Xattr,
    /// All of these.
    All,
}

impl CopyOptions {
    /// Whether sources are copied into the target.
    pub fn copy_into(&self) -> CopyInto {
        match (self.no_target_directory, &self.into) {
            (true, _) => CopyInto::Never,
            (false, Some(_)) => CopyInto::Always,
            (false, None) => CopyInto::IfDirectory,
        }
    }

    /// The rules that the options select.
    pub fn rules(&self) -> CopyRules {
        let recursive = self.recursive || self.archive;
        let follow = if self.dereference {
            Follow::Always
        } else if self.follow_arguments {
            Follow::Sources
        } else if recursive || self.no_dereference || self.links {
            Follow::Never
        } else {
            Follow::Always
        };
        let mut preserve = Preserve::default();
        if self.preserve_default {
            [Attribute::Mode, Attribute::Ownership, Attribute::Timestamps]
                .iter()
                .for_each(|attribute| attribute.set(&mut preserve, true));
        }
        if self.archive {
            Attribute::All.set(&mut preserve, true);
        }
        preserve.links |= self.links;
        self.preserve.iter().for_each(|attribute| attribute.set(&mut preserve, true));
        preserve.require_attributes = self.preserve.contains(&Attribute::Xattr);
        self.no_preserve.iter().for_each(|attribute| attribute.set(&mut preserve, false));
        let default_mode = !preserve.mode
            && self.no_preserve.iter().any(|attribute| matches!(attribute, Attribute::Mode | Attribute::All));
        let (no_clobber, update, force) = (self.no_clobber, self.update, self.force);
        let remove_destination = self.remove_destination;
        let ignore_unreadable = self.exclude.ignore_unreadable;
        CopyRules {
            ignore_unreadable,
            recursive,
            follow,
            preserve,
            default_mode,
            no_clobber,
            update,
            force,
            remove_destination,
        }
    }
}

impl Attribute {
    /// Adds it to what is preserved, or removes it.
    fn set(self, preserve: &mut Preserve, on: bool) {
        match self {
            Self::Mode => preserve.mode = on,
            Self::Ownership => preserve.ownership = on,
            Self::Timestamps => preserve.timestamps = on,
            Self::Links => preserve.links = on,
            Self::Context | Self::Xattr => preserve.attributes = on,
            Self::All => {
                let Preserve { require_attributes, .. } = *preserve;
                let all = if on { Preserve::all() } else { Preserve::default() };
                *preserve = Preserve { require_attributes, ..all };
            }
        }
    }
}
