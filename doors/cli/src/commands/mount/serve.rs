//! The volume, from opening to unmounting.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use fuse::counts::Counts;
use fuse::served::Options;
use fuse::{Served, Session};
use xebec::Volume;

use super::ending::Ending;
use super::options::Wishes;
use super::{Arguments, background, status};
use crate::args::Global;
use crate::open::{self, ForChanges, Writable};
use crate::output::{Messages, exit_code};

/// Threads that serve, at least: one that waits for the device must not hold up the others.
const LEAST_THREADS: usize = 4;

/// Serves the volume until it is unmounted.
pub fn serve(arguments: &Arguments, wishes: &Wishes, global: &Global) -> anyhow::Result<u8> {
    let directory = arguments
        .directory
        .canonicalize()
        .map_err(|error| anyhow!("{}: {error}", arguments.directory.display()))?;
    let image = arguments.image.canonicalize().unwrap_or_else(|_| arguments.image.clone());
    let ending = Ending::new()?;
    let (volume, messages) = open_volume(&arguments.image, wishes, global)?;
    let mut wanted = wishes.mount.clone();
    wanted.directory.clone_from(&directory);
    if wanted.source.is_empty() {
        wanted.source = image.display().to_string();
    }
    let device = fuse::mount::mount(&wanted).map_err(|error| anyhow!("{}: {error}", directory.display()))?;
    let session = Session::begin(device, wishes.writeback)
        .map_err(|error| anyhow!("{}: {error}", directory.display()))?;
    background::ready()?;
    let counts = Counts::new(wishes.threads.unwrap_or_else(|| global.thread_count().max(LEAST_THREADS)));
    let stop = ending.handle();
    let served = std::thread::scope(|scope| {
        scope.spawn(|| ending.wait(&directory, &volume, &messages));
        let (no_atime, read_only) = (wanted.no_atime, wanted.read_only);
        let options = Options { owners: wishes.owners.clone(), no_atime, read_only };
        let tell = || status::text(&volume, &counts);
        let served = Served::new(&volume, options).telling(&tell);
        let served = session.serve(&served, &counts);
        stop.close();
        served
    });
    drop(session);
    volume.unmount().context("the volume could not be unmounted")?;
    served.map_err(|error| anyhow!("{}: the mount ended: {error}", directory.display()))?;
    Ok(exit_code::OK)
}

fn open_volume(image: &Path, wishes: &Wishes, global: &Global) -> anyhow::Result<(Volume, Messages)> {
    let global = Global {
        partition: wishes.partition.or(global.partition),
        offset: wishes.offset.or(global.offset),
        log_device: wishes.log_device.clone().or_else(|| global.log_device.clone()),
        ..global.clone()
    };
    if wishes.mount.read_only {
        let Writable { volume, messages, .. } = open::in_memory(image, &global)?;
        return Ok((volume, messages));
    }
    let ForChanges { device, mut options, messages } = open::for_changes(image, &global)?;
    options.contents.cache_bytes = wishes.cache.or(options.contents.cache_bytes);
    Ok((Volume::open(device, options)?, messages))
}
