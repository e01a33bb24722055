//! Whole images to and from volumes.
//!
//! # Invariants
//! - The first bytes of a volume are written last: an interrupted push leaves no file system, and can be continued.
//! - A pulled file gets its name when it is complete and stable. Until then `partial` keeps what is there.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::{
    Copied, CopyDeviceError, CopyDeviceOptions, Device, DeviceError, HeaderLastDevice, copy_device, probe,
};
use objects::ObjectDevice;

use crate::in_store::{begin, open_for_changes, open_for_reading};
use crate::partial::PartialFile;
use crate::{RemoteError, RemoteOptions, RemoteUrl, RemoteVolume, Storage};

type Result<T> = std::result::Result<T, RemoteError>;
type Progress<'p> = &'p mut dyn FnMut(Copied) -> ControlFlow<()>;

/// Volumes have a multiple of this size.
const SECTOR: u64 = 512;

/// How an image is pushed to a volume.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    /// Replace what the volume contains.
    pub replace: bool,
    /// Number of threads that read and write.
    pub threads: usize,
}

/// How a volume is pulled to a file.
#[derive(Clone, Copy, Debug)]
pub struct Pull {
    /// Replace an existing file.
    pub replace: bool,
    /// How long to wait for a program that uses the file.
    pub wait: Option<Duration>,
    /// Number of threads that read and write.
    pub threads: usize,
}

/// An image that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageCopied {
    /// Size of the image in bytes.
    pub size: u64,
    /// What was done.
    pub copied: Copied,
    /// Whether an interrupted copy was continued.
    pub resumed: bool,
}

/// A volume or snapshot to be pulled.
#[derive(Debug)]
pub struct PullSource {
    /// It is open for reading.
    pub volume: RemoteVolume,
    /// Identifies the contents, if that is possible.
    state: Option<String>,
}

/// A volume that is open for changes.
enum Opened {
    Objects(Arc<ObjectDevice>),
    Other(Arc<dyn Device>),
}

impl Opened {
    fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Objects(device) => device.clone(),
            Self::Other(device) => device.clone(),
        }
    }

    /// Makes all durable, and lets others open the volume.
    fn close(self) -> Result<()> {
        match self {
            Self::Objects(device) => Ok(device.close()?),
            Self::Other(device) => device.flush().map_err(RemoteError::Device),
        }
    }
}

impl RemoteUrl<'_> {
    /// Makes a volume equal to an image, and creates it if it does not exist. If the volume contains something already,
    /// only differences are written; that is refused without [`Push::replace`], except after an interrupted push.
    ///
    /// # Errors
    /// [`RemoteError`]. The volume exists then, if it could be created, without a file system.
    pub fn push(
        &self,
        source: &dyn Device,
        push: &Push,
        options: &RemoteOptions,
        progress: Progress<'_>,
    ) -> Result<ImageCopied> {
        let options = RemoteOptions { writable: true, ..options.clone() };
        let size = source.size().next_multiple_of(SECTOR).max(SECTOR);
        let exists = self.exists(&options)?;
        let opened = match (self.storage, exists) {
            (Storage::Rbd, true) => Opened::Other(self.open(&options)?.device),
            (Storage::Rbd, false) => Opened::Other(self.create(size, &options)?),
            (Storage::Objects, true) => {
                Opened::Objects(Arc::new(open_for_changes(&self.url.parse()?, &options)?))
            }
            (Storage::Objects, false) => {
                let device = begin(&self.url.parse()?, size, &options)?;
                // From here on it exists, so that an interrupted push can be continued.
                device.checkpoint()?;
                Opened::Objects(Arc::new(device))
            }
        };
        let pushed = self.push_to(&opened.device(), source, size, (push, exists), progress);
        // Closed after an error, too, so that the next push need not take over.
        let closed = opened.close();
        let copied = pushed?;
        closed?;
        Ok(ImageCopied { size, copied, resumed: exists && !push.replace })
    }

    fn push_to(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn Device,
        size: u64,
        (push, exists): (&Push, bool),
        progress: Progress<'_>,
    ) -> Result<Copied> {
        if exists && !push.replace {
            self.expect_interrupted(device, size)?;
        }
        // First, so that nobody takes a volume whose end was cut off for a file system.
        let target = HeaderLastDevice::new(Arc::clone(device)).map_err(RemoteError::Device)?;
        if device.size() != size {
            device.set_size(size).map_err(RemoteError::Device)?;
        }
        let options = CopyDeviceOptions { from: 0, compares: exists, threads: push.threads };
        let mut failed: Option<DeviceError> = None;
        let copied = copy_device(source, &target, &options, &mut |copied| {
            // The target does not flush before its header is written.
            if let Err(error) = device.flush() {
                failed = Some(error);
                return ControlFlow::Break(());
            }
            progress(copied)
        });
        if let Some(error) = failed {
            return Err(RemoteError::Copy(CopyDeviceError::Write(error)));
        }
        let copied = copied.map_err(RemoteError::Copy)?;
        target.finish().map_err(RemoteError::Device)?;
        Ok(copied)
    }

    /// Refuses a volume that is not what an interrupted push of this size leaves.
    fn expect_interrupted(&self, device: &Arc<dyn Device>, size: u64) -> Result<()> {
        let contains = |content: String| RemoteError::Contains { url: self.to_string(), content };
        if !HeaderLastDevice::is_unfinished(&**device).map_err(RemoteError::Device)? {
            return Err(contains(probe(&**device).map_err(RemoteError::Device)?.to_string()));
        }
        match device.size() == size {
            true => Ok(()),
            false => Err(contains(format!("{} bytes, and the image has {size}", device.size()))),
        }
    }

    /// Opens the volume or snapshot for [`PullSource::pull`].
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open_to_pull(&self, options: &RemoteOptions) -> Result<PullSource> {
        let options = RemoteOptions { writable: false, ..options.clone() };
        match self.storage {
            Storage::Rbd => Ok(PullSource { volume: self.open(&options)?, state: None }),
            Storage::Objects => {
                let device = open_for_reading(&self.url.parse()?, &options)?;
                let state = Some(device.state());
                let writer = device.writer().filter(|_| !self.names_snapshot().unwrap_or(false));
                Ok(PullSource { volume: RemoteVolume { device: Arc::new(device), writer }, state })
            }
        }
    }
}

impl PullSource {
    /// Copies the volume to a file, which is equal to it then. An interrupted copy of the same state is continued; the
    /// file is called `NAME.partial` until it is complete.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn pull(&self, file: &Path, pull: &Pull, progress: Progress<'_>) -> Result<ImageCopied> {
        let source = &*self.volume.device;
        let size = source.size();
        let state = self.state.as_deref().unwrap_or_default();
        let (partial, mut from) =
            PartialFile::open(file, size, state, (pull.replace, pull.wait)).map_err(RemoteError::File)?;
        if self.state.is_none() && from > 0 {
            partial.clear().map_err(RemoteError::Device)?;
            from = 0;
        }
        let options = CopyDeviceOptions { from, compares: false, threads: pull.threads };
        let mut failed = None;
        let copied = copy_device(source, partial.device(), &options, &mut |copied| match partial
            .record(copied.up_to)
        {
            Ok(()) => progress(copied),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        });
        if let Some(error) = failed {
            return Err(RemoteError::Device(error));
        }
        let copied = copied.map_err(RemoteError::Copy)?;
        partial.finish().map_err(RemoteError::File)?;
        Ok(ImageCopied { size, copied, resumed: from > 0 })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use block::{ContentClass, Durability, MemoryDevice};

    use super::*;

    const SIZE: u64 = 96 << 20;

    /// An image with data in pieces, which begins with the magic number of XFS.
    fn image() -> MemoryDevice {
        let device = MemoryDevice::new(SIZE);
        for at in (0..SIZE).step_by(3 << 20) {
            let bytes: Vec<u8> = (0..1 << 20).map(|n: u64| (n / 4096 + at / 7) as u8).collect();
            device.write_at(at, &bytes, Durability::Buffered).unwrap();
        }
        device.write_at(0, b"XFSB", Durability::Buffered).unwrap();
        device
    }

    fn contents(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }

    fn go_on(_: Copied) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Stops after the first round.
    fn stop(_: Copied) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    #[test]
    fn an_interrupted_push_leaves_no_file_system_and_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("file://{}/volume", folder.path().display());
        let url = RemoteUrl::new(Path::new(&text)).unwrap();
        let (image, options) = (image(), RemoteOptions::default());
        let push = Push { replace: false, threads: 2 };
        let stopped = url.push(&image, &push, &options, &mut stop).unwrap_err();
        assert!(matches!(stopped, RemoteError::Copy(CopyDeviceError::Stopped)));
        let half = url.open(&options).unwrap();
        assert_eq!(half.writer, None, "it is closed");
        assert_eq!(probe(&*half.device).unwrap().class, ContentClass::Unknown);
        let done = url.push(&image, &push, &options, &mut go_on).unwrap();
        assert!(done.resumed && done.copied.written < done.copied.read, "{done:?}");
        assert!(contents(&*url.open(&options).unwrap().device) == contents(&image));
        let refused = url.push(&image, &push, &options, &mut go_on).unwrap_err();
        assert!(refused.to_string().contains("--force"), "{refused}");
        // Differences only.
        image.write_at(50 << 20, &[1; 4096], Durability::Buffered).unwrap();
        image.write_at(3 << 20, &[0; 1 << 20], Durability::Buffered).unwrap();
        let push = Push { replace: true, ..push };
        let done = url.push(&image, &push, &options, &mut go_on).unwrap();
        assert!(done.copied.written < 3 << 20, "{done:?}");
        assert!(contents(&*url.open(&options).unwrap().device) == contents(&image));
    }

    #[test]
    fn an_interrupted_pull_is_continued_if_the_volume_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("file://{}/volume", folder.path().display());
        let url = RemoteUrl::new(Path::new(&text)).unwrap();
        let (image, options) = (image(), RemoteOptions::default());
        url.push(&image, &Push { replace: false, threads: 2 }, &options, &mut go_on).unwrap();
        let file = folder.path().join("file");
        let pull = Pull { replace: false, wait: None, threads: 2 };
        let run = |progress: Progress<'_>| url.open_to_pull(&options).unwrap().pull(&file, &pull, progress);
        assert!(run(&mut stop).is_err());
        assert!(!file.exists());
        let done = run(&mut go_on).unwrap();
        // Holes were neither read nor written.
        assert!(done.resumed && done.copied.read < SIZE / 3, "{done:?}");
        assert!(fs::read(&file).unwrap() == contents(&image));
        fs::remove_file(&file).unwrap();
        assert!(run(&mut stop).is_err());
        let device = url.open(&RemoteOptions { writable: true, ..options.clone() }).unwrap().device;
        device.write_at(0, &[7; 4096], Durability::Fua).unwrap();
        image.write_at(0, &[7; 4096], Durability::Buffered).unwrap();
        // Also of a volume that is open.
        let done = run(&mut go_on).unwrap();
        assert!(!done.resumed, "it has changed: {done:?}");
        assert!(fs::read(&file).unwrap() == contents(&image));
        drop(device);
    }
}
