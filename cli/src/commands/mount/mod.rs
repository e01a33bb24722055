//! `xebec mount`, `umount`, `status`: a volume as a directory of this machine.
//!
//! | part | subject |
//! |---|---|
//! | `serve` | the volume, from opening to unmounting |
//! | `background` | a process of its own, once it is mounted |
//! | `ending` | signals |
//! | `status` | what a mount tells of itself |
//! | `metrics`, `http` | the same for Prometheus |
//! | `umount` | the other end |
//! | `helper` | called as `mount.xebec`, by mount(8) |

mod background;
mod ending;
pub mod helper;
mod http;
mod metrics;
mod serve;
pub mod status;
pub mod umount;

use std::path::PathBuf;

use clap::Args;

use crate::args::Global;
use crate::commands::mkfs::wrong;
use fuse::options::{self, Wishes};

/// Arguments of `mount`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Any program can use the volume then. An ordinary user needs fusermount3 (package fuse3), and is \
    alone with the mount unless -o allow_other is given; root needs nothing. A dirty log is replayed first. The \
    image is locked as long as it is mounted. When the command returns, the mount is there; a process in the \
    background serves it until it is unmounted (xebec umount, umount, fusermount3 -u), or until SIGTERM.\n\n\
    Options after -o, with commas between them:\n  \
    ro, rw                       read only: the image is not touched, a dirty log is replayed in memory; or changed\n  \
    allow_other                  other users, too (an ordinary user may need user_allow_other in /etc/fuse.conf)\n  \
    suid, nosuid, dev, nodev     as in mount(8); off for root alone\n  \
    exec, noexec                 as in mount(8)\n  \
    relatime, noatime            when reading leaves a time behind\n  \
    logdev=PATH                  the log lies there\n  \
    partition=N, offset=BYTES    where in the image the volume is\n  \
    idmap=user                   what root owns in the volume is yours here, and the reverse\n  \
    idmap=[u:|g:]IN:HERE[:N]     N owners (users, groups, both) of the volume have other numbers here\n  \
    (idmap implies nosuid, unless suid is given)\n  \
    writeback_cache              small writes cost less; no space is told at fsync and close, not at write\n  \
    metrics=[ADDRESS:]PORT       Prometheus finds numbers at http://127.0.0.1:PORT/metrics (or ADDRESS)\n  \
    threads=N                    that serve requests\n  \
    cache=BYTES                  of contents and metadata in memory\n\n\
    Examples:\n  \
    xebec mount disk.xfs /mnt\n  \
    xebec mount -o idmap=user disk.xfs mnt     # you may do all that root may\n  \
    xebec mount -o ro,allow_other disk.xfs mnt && ls mnt\n  \
    xebec mount --foreground disk.xfs mnt      # stays; ^C unmounts\n  \
    xebec umount mnt\n\n\
    Exit codes: 0 mounted; 1 it failed; 2 wrong usage."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// The directory.
    pub directory: PathBuf,
    /// How, as in mount(8).
    #[arg(short, long, value_name = "OPTIONS", value_delimiter = ',', value_parser = options::parse)]
    pub options: Vec<options::Wish>,
    /// Stay, instead of leaving a process in the background.
    #[arg(short, long)]
    pub foreground: bool,
}

/// Runs `mount`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    if !arguments.foreground && !background::is_it() {
        return background::start();
    }
    let wishes = Wishes::new(&arguments.options).map_err(wrong)?;
    serve::serve(arguments, &wishes, global)
}
