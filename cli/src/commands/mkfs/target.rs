//! The file or device of a new volume: creating, opening, checking for existing data.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use remote::{RemoteOptions, RemoteUrl};
use xebec::device::{
    ContentClass, Device, FileDevice, Io, NewFile, OpenImageOptions, OpenOptions, open_image, probe,
};

use super::wrong;
use crate::args::Global;
use crate::open::retry_while_ending;
use crate::sizes::with_unit;
use crate::urls::shown;

/// Options of a target.
#[derive(Clone, Copy, Debug)]
pub struct TargetOptions {
    /// Size that the file gets.
    pub size: Option<u64>,
    /// Size of a new file.
    pub size_if_new: Option<u64>,
    /// Overwrite existing data.
    pub force: bool,
    /// Do not change anything.
    pub dry_run: bool,
}

/// Where a volume or its log is created.
pub enum Target<'p> {
    /// An existing file or device, or the volume of a URL, and its new size.
    Existing(Arc<dyn Device>, u64),
    /// A partition of an existing disk.
    Partition(Arc<dyn Device>),
    /// A new file, which appears when it is complete.
    New(NewFile),
    /// The volume of a URL, which is created when all checks have passed, and its size.
    NewRemote(RemoteUrl<'p>, u64, RemoteOptions),
    /// A dry run, with this size.
    DryRun(u64),
}

impl<'p> Target<'p> {
    /// Opens or creates the target.
    pub fn open(path: &'p Path, target_options: &TargetOptions, global: &Global) -> anyhow::Result<Self> {
        let options = OpenOptions {
            direct: global.direct,
            io: Io::Pread,
            writable: !target_options.dry_run,
            wait: global.wait(),
            ..OpenOptions::default()
        };
        let is_part = global.partition.is_some() || global.offset.is_some();
        if let Some(url) = RemoteUrl::new(path) {
            if is_part {
                return Err(wrong(format!(
                    "--partition and --offset are for files and devices: a new volume takes all of {url}"
                )));
            }
            return Self::open_remote(path, url, target_options, global.remote(!target_options.dry_run));
        }
        if is_part {
            return Self::open_partition(path, target_options, global, options);
        }
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Self::create(path, target_options, &options);
            }
            Err(error) => bail!("cannot open: {error}"),
        };
        let file = retry_while_ending(path, global, || FileDevice::open(path, &options))?;
        if metadata.is_file() {
            refuse_qcow2(&file, path)?;
        }
        if !target_options.force {
            refuse_existing_data(&file, path)?;
        }
        let Some(size) = target_options.size.filter(|size| *size != file.size()) else {
            let size = file.size();
            return Ok(Self::Existing(Arc::new(file), size));
        };
        if !metadata.is_file() {
            return Err(wrong(format!(
                "--size: the device has {}, which cannot be changed (for a smaller volume: -d size=NUM)",
                with_unit(file.size())
            )));
        }
        if size < file.size() && !target_options.force {
            return Err(wrong(format!(
                "--size: the file has {} and would be truncated: use -f, or create a smaller volume in it with -d \
                size=NUM",
                with_unit(file.size())
            )));
        }
        if target_options.dry_run {
            return Ok(Self::DryRun(size));
        }
        Ok(Self::Existing(Arc::new(file), size))
    }

    fn open_partition(
        path: &Path,
        target_options: &TargetOptions,
        global: &Global,
        options: OpenOptions,
    ) -> anyhow::Result<Self> {
        if target_options.size.is_some() {
            return Err(wrong(
                "--size: the size of a partition cannot be changed (for a smaller volume: -d size=NUM)"
                    .into(),
            ));
        }
        let image = OpenImageOptions {
            file: options,
            partition: global.partition,
            offset: global.offset,
            backing: false,
        };
        let device = retry_while_ending(path, global, || open_image(path, &image))?;
        if !target_options.force {
            refuse_existing_data(&*device, path)?;
        }
        Ok(Self::Partition(device))
    }

    fn open_remote(
        path: &Path,
        url: RemoteUrl<'p>,
        target_options: &TargetOptions,
        options: RemoteOptions,
    ) -> anyhow::Result<Self> {
        let &TargetOptions { size, size_if_new, force, dry_run } = target_options;
        if !url.exists(&options)? {
            let Some(size) = size.or(size_if_new) else {
                return Err(wrong(format!("{url} does not exist: give its size with --size")));
            };
            return Ok(if dry_run { Self::DryRun(size) } else { Self::NewRemote(url, size, options) });
        }
        let device = url.open(&options)?.device;
        if !force {
            refuse_existing_data(&*device, path)?;
        }
        let size = size.unwrap_or(device.size());
        if size < device.size() && !force {
            return Err(wrong(format!(
                "--size: {url} has {} and would be truncated: use -f",
                with_unit(device.size())
            )));
        }
        Ok(if dry_run { Self::DryRun(size) } else { Self::Existing(device, size) })
    }

    fn create(path: &Path, target_options: &TargetOptions, options: &OpenOptions) -> anyhow::Result<Self> {
        let Some(size) = target_options.size.or(target_options.size_if_new) else {
            return Err(wrong(format!("{} does not exist: give its size with --size", path.display())));
        };
        if target_options.dry_run {
            return Ok(Self::DryRun(size));
        }
        Ok(Self::New(NewFile::create(path, size, options)?))
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Existing(_, size) => *size,
            Self::Partition(device) => device.size(),
            Self::New(file) => file.device().size(),
            Self::NewRemote(_, size, _) | Self::DryRun(size) => *size,
        }
    }

    /// Sector size in bytes.
    pub fn sector_size(&self) -> u32 {
        match self {
            Self::Existing(file, _) => file.logical_sector_size(),
            Self::Partition(device) => device.logical_sector_size(),
            Self::New(file) => file.device().logical_sector_size(),
            Self::NewRemote(..) | Self::DryRun(_) => 512,
        }
    }

    /// Resizes an existing file.
    pub fn prepare(&self) -> anyhow::Result<()> {
        match self {
            Self::Existing(file, size) if *size != file.size() => Ok(file.set_size(*size)?),
            _ => Ok(()),
        }
    }

    /// The device to write to.
    pub fn device(&self) -> anyhow::Result<Arc<dyn Device>> {
        match self {
            Self::Existing(device, _) => Ok(Arc::clone(device)),
            Self::NewRemote(url, size, options) => Ok(url.create(*size, options)?),
            Self::Partition(device) => Ok(Arc::clone(device)),
            Self::New(file) => Ok(file.device().clone()),
            Self::DryRun(_) => bail!("nothing is written with -N"),
        }
    }

    /// Completes the target: a new file gets its name.
    pub fn finish(self) -> anyhow::Result<()> {
        if let Self::New(file) = self {
            file.publish()?;
        }
        Ok(())
    }
}

/// Refuses a qcow2 image, as the raw volume would get the size of the file.
fn refuse_qcow2(device: &dyn Device, path: &Path) -> anyhow::Result<()> {
    if probe(device)?.class != ContentClass::Qcow2 {
        return Ok(());
    }
    bail!(
        "{} is a qcow2 image: create a new one with `xebec create --format qcow2 -f --from DIR`, or delete the \
        file first",
        path.display()
    )
}

/// Refuses a device with existing data.
fn refuse_existing_data(device: &dyn Device, path: &Path) -> anyhow::Result<()> {
    let content = probe(device)?;
    if matches!(content.class, ContentClass::Empty | ContentClass::Zeros | ContentClass::Unknown) {
        return Ok(());
    }
    bail!("{} contains {content}: use -f to overwrite", shown(path))
}
