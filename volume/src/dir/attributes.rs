//! Extended attributes by paths. Symbolic links are not followed: they have attributes of their own, though only
//! root's.

use super::resolve::expect_path;
use super::{AsPath, Dir};
use crate::{Result, SetAttribute};

impl Dir<'_> {
    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// `ENODATA` if it does not exist, or if the caller must not see it; `EOPNOTSUPP` for a name with another prefix;
    /// `EACCES`; as [`metadata`](Self::metadata).
    pub fn get_attribute(&self, path: impl AsPath, name: impl AsPath) -> Result<Vec<u8>> {
        let file = self.find(expect_path(path.as_path())?, false)?;
        self.volume.get_attribute_of(self.caller(), file.inode(), name.as_path())
    }

    /// Returns the names of a file's attributes. Those of the namespace `trusted` are for root only.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub fn list_attributes(&self, path: impl AsPath) -> Result<Vec<Vec<u8>>> {
        let file = self.find(expect_path(path.as_path())?, false)?;
        self.volume.list_attributes_of(self.caller(), file.inode())
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// As [`Volume::set_attribute`](crate::Volume::set_attribute); `EACCES` and `EPERM` if the caller must not change
    /// it.
    pub fn set_attribute(
        &self,
        path: impl AsPath,
        name: impl AsPath,
        value: &[u8],
        condition: SetAttribute,
    ) -> Result<()> {
        let file = self.find(expect_path(path.as_path())?, false)?;
        self.volume.set_attribute_of(self.caller(), file.inode(), name.as_path(), value, condition)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `ENODATA` if it does not exist; as [`set_attribute`](Self::set_attribute).
    pub fn remove_attribute(&self, path: impl AsPath, name: impl AsPath) -> Result<()> {
        let file = self.find(expect_path(path.as_path())?, false)?;
        self.volume.remove_attribute_of(self.caller(), file.inode(), name.as_path())
    }
}
