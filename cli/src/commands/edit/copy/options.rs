//! Options of `cp`, which are those of GNU's.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use crate::excludes::Exclude;

use super::engine::{Follow, Keep, Rules};

/// How files are copied.
#[derive(Clone, Debug, Args)]
pub struct How {
    /// Copy files of the volume: they share their blocks where the volume can.
    #[arg(long)]
    pub within: bool,
    /// Directories, too, with everything in them; pipes and devices as such.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep everything, and copy symbolic links: the same as -r -d --preserve=all.
    #[arg(short, long)]
    archive: bool,
    /// Keep permissions, owner, group and times: the same as --preserve.
    #[arg(short = 'p')]
    keep: bool,
    /// What files keep.
    #[arg(
        long,
        value_name = "LIST",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        value_delimiter = ',',
        default_missing_values = ["mode", "ownership", "timestamps"]
    )]
    preserve: Vec<What>,
    /// What files do not keep.
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',')]
    no_preserve: Vec<What>,
    /// Copy symbolic links, and keep hard links: the same as -P --preserve=links.
    #[arg(short = 'd')]
    links: bool,
    /// Copy symbolic links.
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "follow_arguments"])]
    no_dereference: bool,
    /// Follow all symbolic links.
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_arguments"])]
    dereference: bool,
    /// Follow symbolic links that are named here.
    #[arg(short = 'H', overrides_with_all = ["no_dereference", "dereference"])]
    follow_arguments: bool,
    /// Leave what exists as it is.
    #[arg(short, long)]
    no_clobber: bool,
    /// Leave what exists as it is, unless its source is newer.
    #[arg(short, long)]
    update: bool,
    /// Remove what exists and cannot be opened.
    #[arg(short, long)]
    force: bool,
    /// Remove what exists before it is made anew.
    #[arg(long)]
    remove_destination: bool,
    /// Copy into this directory: all other paths are sources.
    #[arg(
        short = 't',
        long = "target-directory",
        value_name = "DIR",
        conflicts_with = "no_target_directory"
    )]
    pub into: Option<OsString>,
    /// The target is the copy itself, also where it is a directory.
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    #[command(flatten)]
    pub exclude: Exclude,
}

/// What a file can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Permissions, and access control lists.
    Mode,
    /// Owner and group.
    Ownership,
    /// Times of the last read and the last change.
    Timestamps,
    /// Which names mean one file.
    Links,
    /// SELinux's label: an extended attribute here.
    Context,
    /// Extended attributes, capabilities among them.
    Xattr,
    /// All of that.
    All,
}

impl How {
    /// What these options mean together.
    pub fn rules(&self) -> Rules {
        let recursive = self.recursive || self.archive;
        let follow = if self.dereference {
            Follow::Always
        } else if self.follow_arguments {
            Follow::Arguments
        } else if recursive || self.no_dereference || self.links {
            Follow::Never
        } else {
            Follow::Always
        };
        let mut keep = Keep::default();
        if self.keep {
            [What::Mode, What::Ownership, What::Timestamps].iter().for_each(|what| keep.set(*what, true));
        }
        if self.archive {
            keep.set(What::All, true);
        }
        keep.links |= self.links;
        self.preserve.iter().for_each(|what| keep.set(*what, true));
        keep.attributes_or_fail = self.preserve.contains(&What::Xattr);
        self.no_preserve.iter().for_each(|what| keep.set(*what, false));
        let usual_mode =
            !keep.mode && self.no_preserve.iter().any(|what| matches!(what, What::Mode | What::All));
        let (no_clobber, update, force) = (self.no_clobber, self.update, self.force);
        let remove_destination = self.remove_destination;
        let ignore_unreadable = self.exclude.ignore_unreadable;
        Rules {
            ignore_unreadable,
            recursive,
            follow,
            keep,
            usual_mode,
            no_clobber,
            update,
            force,
            remove_destination,
        }
    }
}

impl Keep {
    fn set(&mut self, what: What, on: bool) {
        match what {
            What::Mode => self.mode = on,
            What::Ownership => self.ownership = on,
            What::Timestamps => self.timestamps = on,
            What::Links => self.links = on,
            What::Context | What::Xattr => self.attributes = on,
            What::All => {
                *self = Self { mode: on, ownership: on, timestamps: on, links: on, attributes: on, ..*self };
            }
        }
    }
}
