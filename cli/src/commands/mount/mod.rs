//! `xebec mount`, `umount`, `status`: volumes mounted through FUSE.
//!
//! | part | subject |
//! |---|---|
//! | `serve` | serving a volume, from mount to unmount |
//! | `background` | the process in the background |
//! | `signals` | signals |
//! | `status` | statistics of a mount |
//! | `metrics`, `http` | statistics for Prometheus |
//! | `umount` | unmounting |
//! | `helper` | `mount.xebec`, the helper of mount(8) |

mod background;
pub mod helper;
mod http;
mod metrics;
mod serve;
mod signals;
pub mod status;
pub mod umount;
mod watch;

use std::path::PathBuf;

use clap::Args;

use crate::args::Global;
use crate::commands::mkfs::wrong;
use crate::memory;
use fuse::options::{self, MountOptions};

/// Arguments of `mount`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Unprivileged users need fusermount3 (package fuse3), and only they can access the mount unless \
    -o allow_other is given. A dirty log is replayed first. The image is locked while it is mounted. The command \
    returns when the volume is mounted; a background process serves it until it is unmounted (xebec umount, \
    umount, fusermount3 -u) or receives SIGTERM.\n\n\
    Options of -o, separated by commas:\n  \
    ro, rw                       read-only (a dirty log is replayed in memory) or read-write\n  \
    allow_other                  allow access by other users (may need user_allow_other in /etc/fuse.conf)\n  \
    suid, nosuid, dev, nodev     as in mount(8); suid and dev for root only\n  \
    exec, noexec                 as in mount(8)\n  \
    relatime, noatime            when access times are updated\n  \
    logdev=PATH                  device or file with the external log\n  \
    partition=N, offset=BYTES    location of the volume in the image\n  \
    idmap=user                   map root of the volume to your user and group, and the reverse\n  \
    idmap=VOLUME:HOST[:COUNT]    map user and group IDs of the volume to IDs of the host\n  \
    (u:VOLUME:..., g:VOLUME:...: only user or group IDs; idmap implies nosuid, unless suid is given)\n  \
    writeback_cache              cache writes in the kernel; ENOSPC is reported by fsync and close\n  \
    metrics=[ADDRESS:]PORT       serve Prometheus metrics at http://127.0.0.1:PORT/metrics (or ADDRESS)\n  \
    commit=SECONDS               age at which changes are stable in the image [default: 5]\n  \
    threads=N                    maximum number of worker threads\n  \
    memory=BYTES                 memory for file data, metadata, inodes and names [default: XEBEC_MEMORY]\n  \
    dirty_ratio=PERCENT          limit of dirty file data in percent of the memory for file data [default: 50]\n  \
    dirty_background_ratio=PERCENT   dirty file data above which all of it is written back [default: 25]\n  \
    reclaim=never|only-in-trouble|write-from-direct   whether a lack of memory makes threads write, to compare with\n  \
    locks=fine|coarse            many locks for names and inodes in memory; one each, to compare with\n\n\
    Examples:\n  \
    xebec mount disk.xfs /mnt\n  \
    xebec mount -o idmap=user disk.xfs mnt     # files of root belong to you\n  \
    xebec mount -o ro,allow_other disk.xfs mnt && ls mnt\n  \
    xebec mount --foreground disk.xfs mnt      # ^C unmounts\n  \
    xebec umount mnt\n\n\
    Exit codes: 0 mounted; 1 failure; 2 usage error."
)]
pub struct Arguments {
    /// The image.
    pub image: PathBuf,
    /// Mount point.
    pub directory: PathBuf,
    /// Mount options, as in mount(8).
    #[arg(short, long, value_name = "OPTIONS", value_delimiter = ',', value_parser = options::validate)]
    pub options: Vec<String>,
    /// Do not run in the background.
    #[arg(short, long)]
    pub foreground: bool,
}

/// Runs `mount`.
pub fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<u8> {
    let options = MountOptions::new(&arguments.options).map_err(wrong)?;
    memory::restart_if_small(memory::of_mount(options.memory).bytes());
    if !arguments.foreground && !background::is_background() {
        return background::start();
    }
    serve::serve(arguments, &options, global)
}
