//! Where a volume is made, and what it is put into: an image file that gets its name when all is done, or a device that
//! holds nothing until then; with a partition table around it; as it is, or as a qcow2 image.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use block::{
    Device, FileDevice, NewFile, OpenOptions, Replaced, SealedDevice, WindowDevice, write_gpt, write_qcow2,
};
use clap::{Args, ValueEnum};

use crate::args::Global;
use crate::commands::mkfs::wrong;
use crate::open::unless_ending;

/// Format of the image.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Container {
    /// Create a GPT with one partition for the volume.
    #[arg(long)]
    gpt: bool,
    /// Image format.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Raw)]
    format: Format,
}

/// Image formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A raw image; unused space is sparse.
    #[default]
    Raw,
    /// A qcow2 image.
    Qcow2,
}

/// A partition begins here, and as much is left behind it for the second table.
const AROUND: u64 = 1 << 20;

/// Where images are made.
pub struct Site<'s> {
    image: &'s Path,
    /// What has the name is replaced.
    replaced: Option<Arc<Replaced>>,
    container: Container,
    /// The block device that is to hold the volume.
    device: Option<Arc<FileDevice>>,
}

impl<'s> Site<'s> {
    /// Opens the image where it is a block device, and locks what is to be replaced: nothing is made where somebody
    /// uses that.
    pub fn open(
        image: &'s Path,
        replace: bool,
        container: Container,
        global: &Global,
    ) -> anyhow::Result<Self> {
        let metadata = std::fs::metadata(image);
        let is_device = metadata.is_ok_and(|metadata| metadata.file_type().is_block_device());
        if is_device && container.format != Format::Raw {
            return Err(wrong("--format: only raw is possible on a device".into()));
        }
        let options = OpenOptions { writable: true, wait: global.wait(), ..OpenOptions::default() };
        let (mut device, mut replaced) = (None, None);
        if is_device {
            device = Some(Arc::new(unless_ending(image, global, || FileDevice::open(image, &options))?));
        } else if replace {
            let claim = || Replaced::claim(image, global.wait());
            replaced = Some(Arc::new(unless_ending(image, global, claim)?));
        }
        Ok(Self { image, replaced, container, device })
    }

    /// Bytes of the image that no volume gets.
    pub fn around(&self) -> u64 {
        if self.container.gpt { 2 * AROUND } else { 0 }
    }

    /// Bytes that the image has, where it has a size of its own.
    pub fn size(&self) -> Option<u64> {
        self.device.as_ref().map(|device| device.size())
    }

    /// Bytes of a sector of the image.
    pub fn sector_size(&self) -> u32 {
        self.device.as_ref().map_or(512, |device| device.logical_sector_size())
    }

    /// A place for a volume of so many bytes, in an image around it.
    pub fn place(&self, size: u64) -> anyhow::Result<Place> {
        let bytes = size + self.around();
        let whole = match (&self.device, self.container.format) {
            (Some(device), _) => Whole::Device(Arc::new(SealedDevice::new(device.clone())?)),
            (None, Format::Raw) => Whole::File(self.new_file(bytes)?),
            // It is read again, and never gets a name itself.
            (None, Format::Qcow2) => Whole::File(NewFile::scratch(self.image, bytes, &self.options())?),
        };
        let volume = self.volume(whole.device(), size)?;
        Ok(Place { whole, volume })
    }

    /// A file that will have the image's name.
    fn new_file(&self, size: u64) -> Result<NewFile, block::OpenError> {
        match &self.replaced {
            Some(replaced) => NewFile::replacing(replaced, size, &self.options()),
            None => NewFile::create(self.image, size, &self.options()),
        }
    }

    /// Where contents are not read again, they leave the page cache.
    fn options(&self) -> OpenOptions {
        let passing = self.container.format == Format::Raw;
        OpenOptions { writable: true, passing, ..OpenOptions::default() }
    }

    fn volume(&self, disk: Arc<dyn Device>, size: u64) -> anyhow::Result<Arc<dyn Device>> {
        Ok(match self.container.gpt {
            true => Arc::new(WindowDevice::new(disk, AROUND, size, "partition 1")?),
            false => disk,
        })
    }

    /// The volume has become so many bytes: the image around it does, too.
    pub fn cut(&self, place: &mut Place, size: u64) -> anyhow::Result<()> {
        let disk = place.whole.device();
        disk.set_size(size + self.around())?;
        place.volume = self.volume(disk, size)?;
        Ok(())
    }

    /// Gives what was made in a place its name; how many bytes the disk has. The ids are those of a partition table.
    pub fn finish(&self, place: Place, ids: [[u8; 16]; 2]) -> anyhow::Result<u64> {
        let Place { whole, volume } = place;
        let size = volume.size();
        drop(volume);
        if self.container.gpt {
            write_gpt(&*whole.device(), AROUND..AROUND + size, ids).context("the partition table")?;
        }
        let size = whole.device().size();
        match (whole, self.container.format) {
            (Whole::Device(device), _) => device.seal()?,
            (Whole::File(file), Format::Raw) => file.publish()?,
            (Whole::File(disk), Format::Qcow2) => {
                let image = self.new_file(0)?;
                write_qcow2(disk.device(), image.shared_device()).context("the qcow2 image")?;
                image.publish()?;
            }
        }
        Ok(size)
    }
}

/// Where one volume is made.
pub struct Place {
    whole: Whole,
    /// What holds the volume.
    pub volume: Arc<dyn Device>,
}

enum Whole {
    File(NewFile),
    Device(Arc<SealedDevice>),
}

impl Whole {
    fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::File(file) => file.shared_device(),
            Self::Device(device) => device.clone(),
        }
    }
}
