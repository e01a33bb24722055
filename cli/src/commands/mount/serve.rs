//! Serves a volume, from mount to unmount.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use format::inode::FileType;
use fuse::mount::{MountConfig, Mounted};
use fuse::statistics::RequestStatistics;
use fuse::volume_operations::Options;
use fuse::{Session, SessionOptions, VolumeOperations};
use xebec::{Access, Cookie, DirtyLimit, SetMetadata, Volume};

use super::http::Endpoint;
use super::signals::SignalHandler;
use super::status::Collector;
use super::{Arguments, background, metrics as metrics_text};
use crate::args::Global;
use crate::commands::edit::unmount;
use crate::memory;
use crate::open::{self, ForChanges};
use crate::output::{Messages, exit_code};
use crate::urls::shown;
use fuse::options::MountOptions;
use xebec::device::{CountedDevice, Device, MountMark};

/// Default minimum number of threads: one that waits for the device must not block the others.
const THREADS_MIN: usize = 4;
/// Minimum number of threads with a kernel that caches writes: while one thread asks the kernel about an inode that is
/// being freed, another one answers its writeback.
const THREADS_MIN_WRITEBACK: usize = 2;

/// Age in seconds at which changes are stable by default, as in ext4.
const COMMIT_S: u32 = 5;

/// Serves the volume until it is unmounted.
pub fn serve(arguments: &Arguments, mount_options: &MountOptions, global: &Global) -> anyhow::Result<u8> {
    let directory = arguments
        .directory
        .canonicalize()
        .map_err(|error| anyhow!("{}: {error}", arguments.directory.display()))?;
    if !directory.is_dir() {
        bail!("{}: mount point is not a directory", arguments.directory.display());
    }
    let image = arguments.image.canonicalize().unwrap_or_else(|_| arguments.image.clone());
    // Opened first and dropped last: a process that waits for it then finds the image unlocked.
    let mark = if mount_options.mount.read_only { None } else { MountMark::open(&image) };
    let metrics = mount_options.metrics.map(Endpoint::new).transpose()?;
    let opened = open_volume(&arguments.image, mount_options, global)?;
    let mut config = MountConfig { directory, ..mount_options.mount.clone() };
    if config.source.is_empty() {
        // Without the options of a URL: everybody can see it.
        config.source = shown(&image);
    }
    let threads_min = if mount_options.writeback { THREADS_MIN_WRITEBACK } else { 1 };
    let threads = mount_options.threads.unwrap_or_else(|| global.thread_count().max(THREADS_MIN));
    let threads = threads.max(threads_min);
    // Before this, signals terminate the program, which may have waited for a lock.
    let result = verify_root(&opened.volume).and_then(|()| SignalHandler::new()).and_then(|signals| {
        let (session, mounted) = mount(&config, &opened, mount_options, mark.as_ref())?;
        let requests = RequestStatistics::new(threads);
        let server = Server { opened: &opened, config: &config, mounted, mount_options, requests };
        server.run(&session, signals, metrics.as_ref())
    });
    // Also if mounting failed: opening has replayed the log.
    let unmounted = unmount(opened.volume);
    result.and(unmounted)?;
    Ok(exit_code::OK)
}

/// Mounts, marks the image as mounted, and notifies the waiting parent.
fn mount(
    config: &MountConfig,
    opened: &Opened,
    mount_options: &MountOptions,
    mark: Option<&MountMark>,
) -> anyhow::Result<(Session, Mounted)> {
    let directory = &config.directory;
    let device = fuse::mount::mount(config).map_err(|error| anyhow!("{}: {error}", directory.display()))?;
    let mounted = Mounted::last_on(directory);
    if let (Some(mark), Some(number)) = (mark, mounted.device()) {
        mark.place(number);
    }
    let max_transfer = memory::max_transfer(mount_options.memory);
    let options = SessionOptions { writeback: mount_options.writeback, max_transfer };
    let session = Session::begin(device, options).map_err(anyhow::Error::from);
    // An optimization, permitted to root only.
    let _ = mounted.set_read_ahead();
    let session = session.and_then(|session| {
        // Before the first request, and only if mounting succeeded.
        if let Err(error) = change_root_owner(opened, mount_options) {
            opened.messages.warn(format_args!("the owner of the root directory was not changed: {error:#}"));
        }
        background::notify_mounted().map(|()| session)
    });
    match session {
        Ok(session) => Ok((session, mounted)),
        Err(error) => {
            // A mount without a server would block its users.
            let _ = mounted.unmount(true);
            Err(anyhow!("{}: {error:#}", directory.display()))
        }
    }
}

/// Verifies the root directory.
fn verify_root(volume: &Volume) -> anyhow::Result<()> {
    let root = volume.metadata(volume.root()).context("cannot read the root directory")?;
    if root.file_type != FileType::Directory {
        bail!("the root inode is not a directory (run `xebec check`)");
    }
    Ok(())
}

/// The root directory of a new volume belongs to root, and an unprivileged user could not write to it. In a volume
/// without files, its owner becomes the mounting user, unless `idmap` is given.
fn change_root_owner(opened: &Opened, mount_options: &MountOptions) -> anyhow::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() || mount_options.mount.read_only || !mount_options.id_maps.is_empty() {
        return Ok(());
    }
    let volume = &opened.volume;
    let root = volume.metadata(volume.root())?;
    let is_new = root.modified == root.created && root.changed == root.created;
    // In reproducible images, all times are equal.
    let mut is_empty = true;
    volume.read_dir(root.id(), Cookie::default(), &mut |entry| {
        is_empty = matches!(entry.name, b"." | b"..");
        is_empty
    })?;
    if !is_new || !is_empty || (root.uid, root.gid, root.permissions) != (0, 0, 0o755) {
        return Ok(());
    }
    let (uid, gid) = (Some(uid.as_raw()), Some(gid.as_raw()));
    volume.set_metadata(root.id(), &SetMetadata { uid, gid, ..SetMetadata::default() })?;
    opened.messages.note(
        "new volume: changed the owner of its root directory to you (-o ro or -o idmap=user prevents that)",
    );
    Ok(())
}

/// The server of a mount.
struct Server<'s> {
    opened: &'s Opened,
    config: &'s MountConfig,
    mounted: Mounted,
    mount_options: &'s MountOptions,
    requests: RequestStatistics,
}

impl Server<'_> {
    /// Serves until the mount ends.
    fn run(
        &self,
        session: &Session,
        signals: SignalHandler,
        metrics: Option<&Endpoint>,
    ) -> anyhow::Result<()> {
        let Self {
            opened: Opened { volume, device, counted, messages },
            config,
            mounted,
            mount_options,
            requests,
        } = self;
        let stop = signals.handle();
        let address = metrics.map(Endpoint::address);
        let collector = Collector { volume, requests, device: device.as_deref(), counted, metrics: address };
        let status = || collector.json();
        let metrics_text = || metrics_text::text(&collector.document());
        let result = std::thread::scope(|scope| {
            let (no_atime, read_only) = (config.no_atime, config.read_only);
            let options = Options { id_maps: mount_options.id_maps.clone(), no_atime, read_only };
            let thread = std::thread::Builder::new().name("xebec-signals".into());
            let started = thread
                .spawn_scoped(scope, || signals.wait(mounted, volume, messages))
                .and_then(|_| metrics.map_or(Ok(()), |metrics| metrics.serve(scope, &metrics_text)));
            let operations = VolumeOperations::new(volume, options).with_status(&status);
            let result = started.and_then(|()| session.serve(&operations, requests));
            stop.close();
            if let Some(metrics) = metrics {
                metrics.stop();
            }
            result
        });
        result.map_err(|error| {
            let _ = mounted.unmount(true);
            anyhow!("{}: the mount ended: {error}", config.directory.display())
        })
    }
}

/// A volume to serve.
struct Opened {
    volume: Volume,
    /// Its device, unless changes stay in memory.
    device: Option<Arc<dyn Device>>,
    /// Its device and that of an external log, with counters.
    counted: Vec<Arc<CountedDevice>>,
    messages: Messages,
}

fn open_volume(image: &Path, mount_options: &MountOptions, global: &Global) -> anyhow::Result<Opened> {
    let global = Global {
        partition: mount_options.partition.or(global.partition),
        offset: mount_options.offset.or(global.offset),
        log_device: mount_options.log_device.clone().or_else(|| global.log_device.clone()),
        ..global.clone()
    };
    let read_only = mount_options.mount.read_only;
    let access = if read_only { Access::InMemory } else { Access::ReadWrite };
    let ForChanges { device, mut options, messages } = open::with_access(image, access, &global)?;
    options.locks = mount_options.locks;
    options.commit_s = Some(mount_options.commit_s.unwrap_or(COMMIT_S));
    options.contents.dirty = mount_options.dirty_ratio.map(DirtyLimit::Percent);
    options.contents.dirty_background = mount_options.dirty_background_ratio.map(DirtyLimit::Percent);
    options.contents.reclaim = mount_options.reclaim;
    let budget = memory::of_mount(mount_options.memory);
    if let Err(error) = budget.follow_pressure() {
        messages.warn(format_args!("the memory of the caches does not follow that of the system: {error}"));
    }
    options.memory = Some(budget);
    let mut counted = Vec::new();
    let mut count = |device| -> Arc<dyn Device> {
        let device = Arc::new(CountedDevice::new(device));
        counted.push(Arc::clone(&device));
        device
    };
    let device = count(device);
    options.log_device = options.log_device.map(&mut count);
    let volume = Volume::open(Arc::clone(&device), options)?;
    Ok(Opened { volume, device: (!read_only).then_some(device), counted, messages })
}
