//! Devices: files through io_uring or pread, memory, overlays, partitions, qcow2.
//!
//! This layer moves bytes. It does not know what a block means, except for the magic numbers by which it names foreign
//! images.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the trait [`Device`] and its guarantees |
//! | `error`, `open_error` | errors, each with an errno |
//! | `file` | [`FileDevice`]: raw files and block devices, buffered or direct |
//! | `open` | opening and locking the file of a [`FileDevice`] |
//! | `uring`, `no_uring` | batches of reads and writes through io_uring; a stand-in for builds without it |
//! | `sys` | system calls on a file that the standard library does not have; [`next_data`] |
//! | `lock`, `ofd` | locks on images between processes: [`find_lock_holder`], [`open_locked`], [`MountMark`] |
//! | `loop_devices`, `mounts` | loop devices and mounts of the kernel |
//! | `create` | [`NewFile`]: an image file that gets its name when it is complete |
//! | `copy_file` | [`copy_file`]: contents of a file to a new one, by sharing blocks where the file system can |
//! | `copy_device` | [`copy_device`]: contents of a device to another one, from several threads |
//! | `memory` | [`MemoryDevice`]: sparse, in memory |
//! | `overlay` | [`OverlayDevice`]: copy-on-write in memory over another device |
//! | `forward` | [`forward!`]: methods of a device around another one |
//! | `window` | [`WindowDevice`]: a byte range of another device |
//! | `header_last` | [`HeaderLastDevice`]: writes its first bytes last |
//! | `image` | [`open_image`]: from a path to the device that contains the file system |
//! | `probe` | [`probe`](fn@probe): names the contents of a device |
//! | `counted` | [`CountedDevice`]: counts what is read and written |
//! | `partition`, `gpt`, `mbr` | [`partitions`]: lists the partitions of a disk |
//! | `gpt_writer` | [`write_gpt`]: a partition table with one partition |
//! | `qcow2` | [`Qcow2Device`]: the disk in a qcow2 image, for reading and writing; [`write_qcow2`] |
//! | [`fiemap`], [`fsxattr`], [`attr_at`] | shared extents and inode flags of files of the host |
//! | `plug` | [`Plug`]: sorts and merges writes |
//! | `aligned`, `mapping`, `pool` | memory for direct I/O, memory outside of the heap, and a pool of it |

mod aligned;
pub mod attr_at;
mod copy_device;
mod copy_file;
mod counted;
mod create;
mod device;
mod error;
pub mod fiemap;
mod file;
mod forward;
pub mod fsxattr;
mod gpt;
mod gpt_writer;
mod header_last;
mod image;
mod lock;
mod loop_devices;
mod mapping;
mod mbr;
mod memory;
mod mounts;
mod ofd;
mod open;
mod open_error;
mod overlay;
mod partition;
mod plug;
mod pool;
mod probe;
mod qcow2;
mod sys;
#[cfg(feature = "io-uring")]
mod uring;
#[cfg(not(feature = "io-uring"))]
#[path = "no_uring.rs"]
mod uring;
mod window;

pub use aligned::{ALIGNMENT, AlignedBuf};
pub use copy_device::{Copied, CopyDeviceError, CopyDeviceOptions, copy_device};
pub use copy_file::{CopyFileError, copy_file};
pub use counted::{CountedDevice, DeviceCounts};
pub use create::{NewFile, ReplacedFile};
pub use device::{Device, Durability, ReadRequest, WriteRequest, WriteRun, check_range, check_write};
pub use error::{DeviceError, ErrnoMessage, Operation};
pub use file::FileDevice;
pub use gpt_writer::write_gpt;
pub use header_last::HeaderLastDevice;
pub use image::{OpenImageOptions, open_disk, open_image, open_image_on};
pub use lock::{LockHolder, LockMode, MountMark, UnmountingServer, find_lock_holder, open_locked};
pub use memory::MemoryDevice;
pub use mounts::{DeviceNumber, Mount, mounts};
pub use open::{Io, OpenOptions};
pub use open_error::{ListedPartition, OpenError};
pub use overlay::{OVERLAY_PAGE, OverlayDevice};
pub use partition::{Partition, PartitionError, PartitionType, partitions};
pub use plug::{FailedRequest, Plug, PlugCounters, PlugCounts};
pub use pool::{BufferPool, PooledBuf};
pub use probe::{Content, ContentClass, probe};
pub use qcow2::{Qcow2Device, write_qcow2};
pub use sys::next_data;
pub use window::WindowDevice;
