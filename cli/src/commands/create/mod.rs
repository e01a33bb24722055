//! `xebec create`: an image from directories and archives, in one command.
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
    after_help = "Everything that the source has is kept: owners, modes, times to the nanosecond, extended \
    attributes, access control lists, capabilities, labels, hard links, devices and holes. No root is needed: owners \
    and devices are only written down.\n\n\
    The volume is as large as its contents need, unless --size or --free ask for more; --minimize cuts off what is \
    free at the end. It appears under its name when \
    it is complete, and what goes wrong before leaves nothing behind. A block device takes the volume as it is, and \
    its first sectors last: until all is done it holds nothing that is known.\n\n\
    Several sources are put on top of each other, and what comes later wins. Letters of the layout (-b, -d, -i, -l, \
    -m, -n, -s, -L) are those of mkfs.xfs, --for leaves out what a kernel or a boot loader cannot read, and --grow-to \
    sizes AGs and log for a volume that will grow.\n\n\
    With --reproducible, or with SOURCE_DATE_EPOCH in the environment, the same sources give the same bytes.\n\n\
    Examples:\n  xebec create disk.xfs --from /usr/share/doc\n  \
    xebec create root.xfs --from rootfs.tar.zst --size 4g -L root\n  \
    tar c -C build . | xebec create disk.xfs --from -\n  \
    xebec create disk.xfs --from build/ --owner 0:0 --mode u=rwX,go=rX --overrides devices.list\n  \
    xebec create root.xfs --from rootfs.tar --file-contexts policy/file_contexts\n  \
    xebec create boot.xfs --from boot/ --for linux-5.15,grub\n  \
    xebec create home.xfs --from /home/me --exclude '*.o' --exclude .cache/\n  \
    xebec create etc.xfs --from /etc --ignore-unreadable\n  \
    xebec create root.xfs --from layer1.tar --from layer2.tar --whiteouts oci --free 20%\n\n\
    With --ignore-unreadable, files and directories of this machine that cannot be read are left out, and so is what \
    lies behind the place where an archive is damaged or ends too early.\n\n\
    Exit codes: 0 success; 1 the image could not be made; 2 usage error; 130 interrupted. Whatever it is, but for 0 \
    nothing is left behind."
)]
pub struct Arguments {
    /// The image to be made: a file, or, with --force, a block device.
    pub image: PathBuf,
    /// A directory, a tar archive (plain, or compressed by gzip, zstd, xz or bzip2), - for one on standard input, or
    /// oci:DIR for an image in an OCI layout; may be given several times.
    #[arg(long, required = true, value_name = "DIR|FILE.tar|-|oci:DIR[:NAME]")]
    from: Vec<OsString>,
    /// Bytes of the image, with the partition table; suffixes k, m, g, t.
    #[arg(long, value_name = "BYTES", value_parser = sizes::parse, conflicts_with = "free")]
    size: Option<u64>,
    /// Free space in the image: bytes, or a share of the image behind which there is a %.
    #[arg(long, value_name = "BYTES|N%", value_parser = Free::parse)]
    free: Option<Free>,
    /// Cut off what is free at the end when all is in it, as `xebec minimize` does.
    #[arg(long, conflicts_with_all = ["size", "free"])]
    minimize: bool,
    #[command(flatten)]
    container: Container,
    #[command(flatten)]
    wishes: Wishes,
    /// Stay in one file system: directories on which others are mounted are left empty.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    #[command(flatten)]
    exclude: Exclude,
    /// How archives say what is to be taken away of those below them.
    #[arg(long, value_name = "KIND")]
    whiteouts: Option<Whiteouts>,
    /// The same sources give the same bytes: nothing is left to chance, and the time is that of SOURCE_DATE_EPOCH, or
    /// of the newest file.
    #[arg(long)]
    reproducible: bool,
    /// Replace an image that exists.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    layout: Layout,
    /// The directory of the volume that everything goes to; the root where it is empty.
    #[arg(skip)]
    below: Vec<u8>,
}

impl Arguments {
    /// An image of one directory, which goes to the directory `below` of it.
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

    /// Whether the same sources shall give the same bytes.
    fn is_reproducible(&self) -> bool {
        self.reproducible || std::env::var_os("SOURCE_DATE_EPOCH").is_some()
    }
}

/// How much is to be left free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Free {
    Bytes(u64),
    Percent(u64),
}

impl Free {
    fn parse(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else { return sizes::parse(text).map(Self::Bytes) };
        let percent = percent.parse().ok().filter(|percent| *percent < 100);
        percent.map(Self::Percent).ok_or_else(|| format!("`{text}` is no share: it is 0% to 99%"))
    }
}

/// Marks of what is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whiteouts {
    /// Files whose names begin with `.wh.`, as in layers of OCI images.
    Oci,
}

/// Makes an image as a part of another command; what was done.
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
