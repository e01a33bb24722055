//! Contents of a device in copy-on-write pages, so that a crash state costs only the pages in which it differs.
//!
//! # Locking
//! [`ImageDevice`] has one lock around its pages, held while bytes are copied. Crash states are small, and few threads
//! use each.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use block::{Device, DeviceError, Durability, Operation};

const PAGE: usize = 4096;
/// Pages that share a reference count.
const GROUP_PAGES: usize = 32;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// A page; `None` if it is all zeros.
type Page = Option<Arc<[u8; PAGE]>>;
type PageGroup = Arc<[Page; GROUP_PAGES]>;

/// Contents of a device. Cloning costs one reference count per page group; a write copies the pages that it changes.
#[derive(Clone)]
pub struct Image {
    size: u64,
    groups: Vec<PageGroup>,
}

impl Image {
    /// Creates an image of zeros.
    pub fn new(size: u64) -> Self {
        let zeros: PageGroup = Arc::new([const { None }; GROUP_PAGES]);
        let groups = size.div_ceil((PAGE * GROUP_PAGES) as u64) as usize;
        Self { size, groups: vec![zeros; groups] }
    }

    /// Copies the contents of a device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn of_device(device: &dyn Device) -> Result<Self, DeviceError> {
        let mut image = Self::new(device.size());
        let mut page = [0; PAGE];
        let mut offset = 0;
        while offset < image.size {
            let length = (image.size - offset).min(PAGE as u64) as usize;
            let bytes = &mut page[..length];
            device.read_at(offset, bytes)?;
            if bytes.iter().any(|byte| *byte != 0) {
                image.write(offset, bytes);
            }
            offset += PAGE as u64;
        }
        Ok(image)
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Extends the image with zeros.
    pub fn grow(&mut self, size: u64) {
        let groups = size.div_ceil((PAGE * GROUP_PAGES) as u64) as usize;
        if let Some(zeros) =
            Self::new((PAGE * GROUP_PAGES) as u64).groups.pop().filter(|_| groups > self.groups.len())
        {
            self.groups.resize(groups, zeros);
        }
        self.size = self.size.max(size);
    }

    /// Reads bytes; zeros past the end.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, start) = ((at / PAGE as u64) as usize, (at % PAGE as u64) as usize);
            let length = (bytes.len() - done).min(PAGE - start);
            let piece = &mut bytes[done..done + length];
            match self.page(page) {
                Some(page) => piece.copy_from_slice(&page[start..start + length]),
                None => piece.fill(0),
            }
            done += length;
        }
    }

    /// Writes bytes; bytes past the end are dropped.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, start) = ((at / PAGE as u64) as usize, (at % PAGE as u64) as usize);
            let length = (bytes.len() - done).min(PAGE - start);
            let piece = &bytes[done..done + length];
            // Do not copy a page for a write without a change: a recovery mostly rewrites the same bytes.
            let current = self.page(page).unwrap_or(&ZEROS);
            if current[start..start + length] != *piece && at < self.size {
                let pages = Arc::make_mut(&mut self.groups[page / GROUP_PAGES]);
                let page = pages[page % GROUP_PAGES].get_or_insert_with(|| Arc::new([0; PAGE]));
                Arc::make_mut(page)[start..start + length].copy_from_slice(piece);
            }
            done += length;
        }
    }

    fn page(&self, page: usize) -> Option<&[u8; PAGE]> {
        self.groups.get(page / GROUP_PAGES)?[page % GROUP_PAGES].as_deref()
    }

    /// Writes the image to a sparse file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        for (page, offset) in self.groups.iter().flat_map(|group| &**group).zip((0..self.size).step_by(PAGE))
        {
            let length = (self.size - offset).min(PAGE as u64) as usize;
            if let Some(page) = page {
                file.write_all_at(&page[..length], offset)?;
            }
        }
        Ok(())
    }

    /// Returns the contents as one vector.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size as usize];
        self.read(0, &mut bytes);
        bytes
    }
}

/// An image as a device. Writes take effect at once; which ones survive a crash is decided by the recording device.
pub struct ImageDevice(RwLock<Image>);

impl ImageDevice {
    /// Creates a device with these contents.
    pub fn new(image: Image) -> Self {
        Self(RwLock::new(image))
    }

    /// Returns the current contents.
    pub fn image(&self) -> Image {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn check(&self, operation: Operation, offset: u64, length: usize) -> Result<(), DeviceError> {
        let (size, length) = (self.size(), length as u64);
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => {
                Err(DeviceError::PastEnd { device: self.describe().into(), operation, offset, length, size })
            }
        }
    }
}

impl Device for ImageDevice {
    fn size(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).size
    }

    fn logical_sector_size(&self) -> u32 {
        512
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.check(Operation::Read, offset, buf.len())?;
        self.0.read().unwrap_or_else(PoisonError::into_inner).read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], _how: Durability) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, buf.len())?;
        self.0.write().unwrap_or_else(PoisonError::into_inner).write(offset, buf);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn describe(&self) -> String {
        "crash state".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_do_not_see_each_others_writes() {
        let mut one = Image::new(20_000);
        one.write(4090, b"across two pages");
        let mut two = one.clone();
        two.write(4092, b"XX");
        let read = |image: &Image| {
            let mut bytes = [0; 8];
            image.read(4088, &mut bytes);
            bytes
        };
        assert_eq!((&read(&one), &read(&two)), (b"\0\0across", b"\0\0acXXss"));
        let device = ImageDevice::new(two.clone());
        assert!(device.read_at(19_999, &mut [0; 2]).is_err());
        assert_eq!(Image::of_device(&device).unwrap().to_bytes(), two.to_bytes());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        two.save(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), two.to_bytes());
    }
}
