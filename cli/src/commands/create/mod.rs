//! `xebec create`: creates an image from directories and archives.
//!
//! | part | does |
//! |---|---|
//! | `sources` | what `--from` names |
//! | `wishes` | owners, modes, times and lists of overrides |
//! | `build` | the volume: made, filled, unmounted, given its name |
//! | `layout` | how large it is |
//! | `place` | the image around the volume: a file or a device, a partition table, a format |
//! | `progress` | how far it is, and what was done |

mod build;
mod layout;
mod place;
mod progress;
mod sources;
pub mod wishes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::args::Global;
use crate::commands::mkfs::Layout;
use crate::excludes::Exclude;
use crate::interrupt;
use crate::output::Messages;
use crate::sizes;
use place::Container;
pub use progress::Summary;
use wishes::Wishes;

/// Arguments of `create`.
#[derive(Debug, Args)]
#[command(
    after_help = "All metadata is preserved: owners, modes, times in nanoseconds, extended attributes, ACLs, \
    capabilities, labels, hard links, devices and holes. Root is not required.\n\n\
    By default the volume is as large as its contents require; --size and --free make it larger, --minimize \
    removes free space at the end. The image appears under its name when it is complete; after a failure nothing \
    is left. On a block device, the first sectors are written last: an interrupted run leaves no file system.\n\n\
    Several sources are merged; files of later ones replace earlier ones. Layout options (-b, -d, -i, -l, -m, -n, \
    -s, -L) are those of mkfs.xfs; --for disables features that a kernel or boot loader does not support, and \
    --grow-to sizes AGs and log for growing the volume later.\n\n\
    With --reproducible, or with SOURCE_DATE_EPOCH in the environment, the image is reproducible.\n\n\
    Examples:\n  xebec create disk.xfs --from /usr/share/doc\n  \
    xebec create root.xfs --from rootfs.tar.zst --size 4g -L root\n  \
    tar c -C build . | xebec create disk.xfs --from -\n  \
    xebec create disk.xfs --from build/ --owner 0:0 --mode u=rwX,go=rX --overrides devices.list\n  \
    xebec create root.xfs --from rootfs.tar --file-contexts policy/file_contexts\n  \
    xebec create boot.xfs --from boot/ --for linux-5.15,grub\n  \
    xebec create home.xfs --from /home/me --exclude '*.o' --exclude .cache/\n  \
    xebec create etc.xfs --from /etc --ignore-unreadable\n  \
    xebec create root.xfs --from layer1.tar --from layer2.tar --whiteouts oci --free 20%\n\n\
    With --ignore-unreadable, unreadable host files and directories are skipped, and so are members behind the \
    point where an archive is damaged or truncated.\n\n\
    Exit codes: 0 success; 1 failure; 2 usage error; 130 interrupted. Unless it is 0, no image is created."
)]
pub struct Arguments {
    /// Image file to create or, with --force, block device.
    pub image: PathBuf,
    /// Source: a directory, a tar archive (optionally compressed with gzip, zstd, xz or bzip2), - for an archive on
    /// standard input, or oci:DIR for an image in an OCI layout. May be repeated.
    #[arg(long, required = true, value_name = "DIR|FILE.tar|-|oci:DIR[:NAME]")]
    from: Vec<OsString>,
    /// Size of the image, including the partition table; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse, conflicts_with = "free")]
    size: Option<u64>,
    /// Free space in the image, in bytes or in percent of the image.
    #[arg(long, value_name = "BYTES|N%", value_parser = Free::parse)]
    free: Option<Free>,
    /// Shrink the volume to its minimum size, as `xebec minimize` does.
    #[arg(long, conflicts_with_all = ["size", "free"])]
    minimize: bool,
    #[command(flatten)]
    container: Container,
    #[command(flatten)]
    wishes: Wishes,
    /// Do not cross file system boundaries; mount points are copied as empty directories.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    #[command(flatten)]
    exclude: Exclude,
    /// Format of whiteouts: members that remove files of earlier sources.
    #[arg(long, value_name = "KIND")]
    whiteouts: Option<Whiteouts>,
    /// Create a reproducible image: no random numbers, and the time of SOURCE_DATE_EPOCH or of the newest file.
    #[arg(long)]
    reproducible: bool,
    /// Overwrite an existing image.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    layout: Layout,
    /// Target directory in the volume; empty for the root.
    #[arg(skip)]
    below: Vec<u8>,
}

impl Arguments {
    /// Arguments for an image of a directory, which is copied to `below` in it.
    pub fn of_directory(image: &Path, below: &[u8], directory: &Path) -> Self {
        Self {
            image: image.into(),
            from: vec![directory.into()],
            size: None,
            free: None,
            minimize: false,
            container: Container::default(),
            wishes: Wishes::default(),
            one_file_system: false,
            exclude: Exclude::default(),
            whiteouts: None,
            reproducible: false,
            force: false,
            layout: Layout::default(),
            below: below.into(),
        }
    }

    /// Sets metadata overrides, exclude patterns, and whether other file systems are entered.
    #[must_use]
    pub fn with(mut self, wishes: &Wishes, exclude: &Exclude, one_file_system: bool) -> Self {
        self.wishes = wishes.clone();
        self.exclude = exclude.clone();
        self.one_file_system = one_file_system;
        self
    }

    /// Whether the image must be reproducible.
    fn is_reproducible(&self) -> bool {
        self.reproducible || std::env::var_os("SOURCE_DATE_EPOCH").is_some()
    }
}

/// Requested free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Free {
    Bytes(u64),
    Percent(u64),
}

impl Free {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else { return sizes::parse(text).map(Self::Bytes) };
        let percent = percent.parse().ok().filter(|percent| *percent < 100);
        percent.map(Self::Percent).ok_or_else(|| format!("`{text}`: expected 0% to 99%"))
    }
}

/// Formats of whiteouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whiteouts {
    /// Files with names that start with `.wh.`, as in OCI layers.
    Oci,
}

/// Creates an image for another command.
pub fn make(arguments: &Arguments, global: &Global, messages: &Messages) -> anyhow::Result<Summary> {
    interrupt::abandon(arguments.image.display());
    build::make(arguments, global, messages).map(|(_, summary)| summary)
}

/// Runs `create`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    interrupt::abandon(arguments.image.display());
    let messages = Messages::new(global, arguments.image.display().to_string());
    build::build(arguments, global, &messages)?;
    Ok(messages.finish())
}
