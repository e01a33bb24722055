//! Stand-in for `uring` in builds without io_uring.

use std::io;

use crate::device::{ReadRequest, WriteRequest, WriteRun};
use crate::error::DeviceError;
use crate::file::FileDevice;

/// There are none in this build.
#[derive(Debug)]
pub enum Rings {}

impl Rings {
    pub fn new() -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this build does not contain it"))
    }

    pub fn read_many(&self, _file: &FileDevice, _reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        match *self {}
    }

    pub fn write_runs(&self, _file: &FileDevice, _runs: &[WriteRun<'_>]) -> Vec<bool> {
        match *self {}
    }

    pub fn write_many(&self, _file: &FileDevice, _writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        match *self {}
    }
}
