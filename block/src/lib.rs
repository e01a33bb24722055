//! Devices: files through io_uring or pread, memory, overlays, partitions, qcow2.
//!
//! This layer moves bytes. It knows nothing of what a block means, but the magic numbers by which it can
//! name a foreign image.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the trait [`Device`] and what it promises |
//! | `discard` | telling a block device that nobody wants a range: an `ioctl` |
//! | `writing` | asking the system to start writing what it took |
//! | `error`, `open_error` | what can go wrong, each with an errno |
//! | `file` | [`FileDevice`]: raw files and block devices over `pread`, buffered or direct |
//! | `create` | [`NewFile`]: an image file that gets its name when it is finished; [`Replaced`]: what has it until then |
//! | `uring` | [`UringDevice`]: the same, with batches of reads through io_uring |
//! | `lock` | who else uses an image: locks between processes, [`writer_of`], [`open_locked`], [`MountMark`] |
//! | `ofd` | locks of single bytes: a call that no crate has |
//! | `loops`, `mounts` | what the kernel does with an image; the table of mounts |
//! | `open` | [`open_file`]: chooses between the two |
//! | `memory` | [`MemoryDevice`]: sparse, in memory |
//! | `overlay` | [`OverlayDevice`]: copy-on-write in memory over another device |
//! | `window` | [`WindowDevice`]: a byte range of another device |
//! | `fault` | [`FaultDevice`]: fails as told, for tests |
//! | `hold` | [`HoldDevice`]: holds calls until told to let them go, for tests |
//! | `record` | [`RecordDevice`]: remembers writes and flushes, and builds what a power cut leaves |
//! | `image` | [`open_image`], [`open_part`]: from a path, or a disk, to the device that should hold a file system |
//! | `probe` | [`probe`](fn@probe): names what a device holds |
//! | `partition`, `gpt`, `mbr` | [`partitions`]: lists the partitions of a disk |
//! | `contain` | [`write_gpt`], [`write_qcow2`]: a finished disk in a partition table, or in a qcow2 image |
//! | `sealed` | [`SealedDevice`]: holds nothing until it is finished |
//! | `qcow2` | [`Qcow2Device`]: the disk inside a qcow2 image, read and changed |
//! | [`beside`] | what the host keeps beside a file, by its name: calls that no crate has |
//! | [`fiemap`] | which files of the host share blocks: an `ioctl`, too |
//! | [`fsxattr`] | flags and project ids that the host keeps beside a file: an `ioctl`, and so here |
//! | `aligned` | [`AlignedBuf`]: memory for direct I/O |
//! | `pool` | [`BufferPool`]: such memory that is taken and given back all the time |

mod aligned;
pub mod beside;
mod contain;
mod create;
mod device;
mod discard;
mod error;
mod fault;
pub mod fiemap;
mod file;
pub mod fsxattr;
mod gpt;
mod hold;
mod image;
mod lock;
mod loops;
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
mod record;
mod sealed;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
mod uring;
mod window;
mod writing;

pub use aligned::{ALIGNMENT, AlignedBuf};
pub use contain::{write_gpt, write_qcow2};
pub use create::{NewFile, Replaced};
pub use device::{Device, Durability, ReadRequest, WriteRequest};
pub use error::{DeviceError, Operation};
pub use fault::{Effect, Fault, FaultDevice, When};
pub use file::{FileDevice, Io, OpenOptions};
pub use hold::{Call, Hold, HoldDevice};
pub use image::{OpenImage, open_image, open_part};
pub use lock::{Ending, Holder, MountMark, Share, open_locked, writer_of};
pub use memory::MemoryDevice;
pub use mounts::{DeviceNumber, Mount, mounts};
pub use open::open_file;
pub use open_error::{ListedPartition, OpenError};
pub use overlay::{OVERLAY_PAGE, OverlayDevice};
pub use partition::{Partition, PartitionError, PartitionType, partitions};
pub use plug::{FailedRequest, Plug, PlugCounters, PlugCounts};
pub use pool::{BufferPool, PooledBuf};
pub use probe::{Class, Content, probe};
pub use qcow2::Qcow2Device;
pub use record::{Cut, Event, RecordDevice, Recording};
pub use sealed::SealedDevice;
#[cfg(all(feature = "io-uring", target_os = "linux"))]
pub use uring::UringDevice;
pub use window::WindowDevice;
