//! Serves a volume, from mount to unmount.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use block::{Device, MountMark};
use format::inode::FileType;
use fuse::mount::{MountConfig, Mounted};
use fuse::statistics::RequestStatistics;
use fuse::volume_operations::Options;
use fuse::{Session, VolumeOperations};
use xebec::{Cookie, SetMetadata, Volume};

use super::http::Endpoint;
use super::signals::SignalHandler;
use super::status::Sources;
use super::{Arguments, background, metrics as numbers, status};
use crate::args::Global;
use crate::commands::edit::unmount;
use crate::open::{self, ForChanges, Writable};
use crate::output::{Messages, exit_code};
use fuse::options::MountOptions;

/// Minimum number of threads: one that waits for the device must not block the others.
const LEAST_THREADS: usize = 4;

/// Serves the volume until it is unmounted.
pub fn serve(arguments: &Arguments, wishes: &MountOptions, global: &Global) -> anyhow::Result<u8> {
    let directory = arguments
        .directory
        .canonicalize()
        .map_err(|error| anyhow!("{}: {error}", arguments.directory.display()))?;
    if !directory.is_dir() {
        bail!("{}: mount point is not a directory", arguments.directory.display());
    }
    let image = arguments.image.canonicalize().unwrap_or_else(|_| arguments.image.clone());
    // Declared first to be dropped last: a waiting process then finds the image unlocked.
    let mut mark = None;
    let metrics = wishes.metrics.map(Endpoint::new).transpose()?;
    let opened = open_volume(&arguments.image, wishes, global)?;
    let mut wanted = wishes.mount.clone();
    wanted.directory.clone_from(&directory);
    if wanted.source.is_empty() {
        wanted.source = image.display().to_string();
    }
    let threads = wishes.threads.unwrap_or_else(|| global.thread_count().max(LEAST_THREADS));
    // Before this, signals terminate the program, which may have waited for a lock.
    let ready = expect_root(&opened.volume);
    let served = ready.and_then(|()| SignalHandler::new()).and_then(|ending| {
        let (session, mounted) = mount(&wanted, &opened, wishes, &image, &mut mark)?;
        let counts = RequestStatistics::new(threads);
        let serving = Serving { opened: &opened, wanted: &wanted, mounted, wishes, counts };
        serving.run(&session, ending, metrics.as_ref())
    });
    // Also if mounting failed: opening has replayed the log.
    let unmounted = unmount(opened.volume);
    served.and(unmounted)?;
    Ok(exit_code::OK)
}

/// Mounts, marks the image as mounted, and notifies the waiting parent.
fn mount(
    wanted: &MountConfig,
    opened: &Opened,
    wishes: &MountOptions,
    image: &Path,
    mark: &mut Option<MountMark>,
) -> anyhow::Result<(Session, Mounted)> {
    let directory = &wanted.directory;
    let device = fuse::mount::mount(wanted).map_err(|error| anyhow!("{}: {error}", directory.display()))?;
    let mounted = Mounted::last_on(directory);
    if !wanted.read_only {
        *mark = mounted.device().and_then(|number| MountMark::place(image, number));
    }
    let begun = Session::begin(device, wishes.writeback).map_err(anyhow::Error::from);
    // For root alone, and nothing that others would miss.
    let _ = mounted.set_read_ahead();
    let begun = begun.and_then(|session| {
        // Before the first request, and not if mounting failed.
        if let Err(error) = give_to_user(opened, wishes) {
            opened.messages.warn(format_args!("the owner of the root directory was not changed: {error:#}"));
        }
        background::ready().map(|()| session)
    });
    match begun {
        Ok(session) => Ok((session, mounted)),
        Err(error) => {
            // Nobody would serve it.
            let _ = mounted.unmount(true);
            Err(anyhow!("{}: {error:#}", directory.display()))
        }
    }
}

/// Verifies the root directory.
fn expect_root(volume: &Volume) -> anyhow::Result<()> {
    let root = volume.metadata(volume.root()).context("cannot read the root directory")?;
    if root.file_type != FileType::Directory {
        bail!("the root inode is not a directory (run `xebec check`)");
    }
    Ok(())
}

/// The root directory of a new volume belongs to root, and an unprivileged user could not write to it. In a volume
/// without files, its owner becomes the mounting user, unless `idmap` is given.
fn give_to_user(opened: &Opened, wishes: &MountOptions) -> anyhow::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() || wishes.mount.read_only || !wishes.id_maps.is_empty() {
        return Ok(());
    }
    let volume = &opened.volume;
    let root = volume.metadata(volume.root())?;
    let is_new = root.modified == root.created && root.changed == root.created;
    // In reproducible images, all times are equal.
    let mut is_empty = true;
    volume.read_dir(root.ino, Cookie::default(), &mut |entry| {
        is_empty = matches!(entry.name, b"." | b"..");
        is_empty
    })?;
    if !is_new || !is_empty || (root.uid, root.gid, root.permissions) != (0, 0, 0o755) {
        return Ok(());
    }
    let (uid, gid) = (Some(uid.as_raw()), Some(gid.as_raw()));
    volume.set_metadata(root.ino, &SetMetadata { uid, gid, ..SetMetadata::default() })?;
    opened.messages.note(
        "new volume: changed the owner of its root directory to you (-o ro or -o idmap=user prevents that)",
    );
    Ok(())
}

/// The server of a mount.
struct Serving<'s> {
    opened: &'s Opened,
    wanted: &'s MountConfig,
    mounted: Mounted,
    wishes: &'s MountOptions,
    counts: RequestStatistics,
}

impl Serving<'_> {
    /// Serves until the mount ends.
    fn run(
        &self,
        session: &Session,
        ending: SignalHandler,
        metrics: Option<&Endpoint>,
    ) -> anyhow::Result<()> {
        let Self { opened: Opened { volume, device, messages }, wanted, mounted, wishes, counts } = self;
        let stop = ending.handle();
        let address = metrics.map(Endpoint::address);
        let sources = Sources { volume, counts, device: device.as_deref(), metrics: address };
        let tell = || status::text(&sources);
        let numbers = || numbers::text(&status::document(&sources));
        let served = std::thread::scope(|scope| {
            let (no_atime, read_only) = (wanted.no_atime, wanted.read_only);
            let options = Options { id_maps: wishes.id_maps.clone(), no_atime, read_only };
            let signals = std::thread::Builder::new().name("xebec-signals".into());
            let begun = signals.spawn_scoped(scope, || ending.wait(mounted, volume, messages));
            let begun = begun.and_then(|_| metrics.map_or(Ok(()), |metrics| metrics.serve(scope, &numbers)));
            let served = VolumeOperations::new(volume, options).with_status(&tell);
            let served = begun.and_then(|()| session.serve(&served, counts));
            stop.close();
            if let Some(metrics) = metrics {
                metrics.stop();
            }
            served
        });
        served.map_err(|error| {
            let _ = mounted.unmount(true);
            anyhow!("{}: the mount ended: {error}", wanted.directory.display())
        })
    }
}

/// A volume to serve.
struct Opened {
    volume: Volume,
    /// Its device, unless changes stay in memory.
    device: Option<Arc<dyn Device>>,
    messages: Messages,
}

fn open_volume(image: &Path, wishes: &MountOptions, global: &Global) -> anyhow::Result<Opened> {
    let global = Global {
        partition: wishes.partition.or(global.partition),
        offset: wishes.offset.or(global.offset),
        log_device: wishes.log_device.clone().or_else(|| global.log_device.clone()),
        ..global.clone()
    };
    if wishes.mount.read_only {
        let Writable { volume, messages, .. } = open::in_memory(image, &global)?;
        return Ok(Opened { volume, device: None, messages });
    }
    let ForChanges { device, mut options, messages } = open::for_changes(image, &global)?;
    options.contents.cache_bytes = wishes.cache.or(options.contents.cache_bytes);
    let volume = Volume::open(Arc::clone(&device), options)?;
    Ok(Opened { volume, device: Some(device), messages })
}
