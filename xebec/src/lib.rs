//! XFS in user space: build, open, change, check and extract volumes, without root and without the kernel.
//!
//! | task | item |
//! |---|---|
//! | build an image from directories, archives or OCI layers | [`ImageBuilder`] |
//! | create an empty volume | [`mkfs::format`] |
//! | open a volume for changes | [`Volume::open_path`], [`Volume::open`] |
//! | files and directories by paths, as `std::fs` | [`Dir`]: `read`, `write`, `rename`, `read_dir`, `metadata`, ... |
//! | act for a user, with permission checks | [`Dir::with_credentials`], [`Credentials`] |
//! | keep paths within a directory | [`Dir::with_resolve`], [`Resolve`] |
//! | create many files in one directory | [`Dir::create_many`] |
//! | watch directories for changes, as `inotify` does | [`Dir::watch`], [`Watch`], [`WatchEvent`] |
//! | contents of files | [`File`], [`OpenOptions`] |
//! | every type of file, metadata, attributes, flags and projects | [`NewFile`], [`SetMetadata`], [`SetAttribute`], [`Settings`] |
//! | address files over a longer time | [`FileId`], [`Handle`], [`Volume::open_id`] |
//! | import into an open volume | [`Writer`] with a [`Source`]; [`TreeSync`] |
//! | extract a tree | [`Extraction`] |
//! | copy files and trees between the host and volumes, as `cp` does | [`TreeCopy`] |
//! | find what differs between two trees | [`TreeDifference`] |
//! | read a volume without the engine, also a damaged one | [`reader`] |
//! | check a volume | [`check`] |
//! | resize | [`Volume::grow`]; not in use: [`resize::grow`], [`resize::shrink`] |
//! | copy an image file, with another UUID | [`ImageClone`] |
//! | label, UUID, features | [`Volume::set_label`], [`identity`], [`features`] |
//! | discard free space | [`Volume::trim`] |
//! | storage: files, memory, overlays, partitions, qcow2 | [`device`] |
//! | open images in other ways: read-only, in memory, a partition, an external log | [`image`] |
//! | volumes on object storage and in a Ceph cluster | `remote` (feature `remote`) |
//!
//! [`Volume`] and [`File`] are `Send + Sync`; all calls are plain functions, without an async runtime. A change is one
//! transaction: after a power failure it has happened completely or not at all. [`Volume::sync`] and
//! [`File::sync_all`] return when the changes before them are durable. [`Volume::unmount`] reports errors of
//! writeback; dropping a volume does not.
//!
//! # Examples
//!
//! Build an image from a directory, and check it:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let (source, image) = (folder.path().join("build"), folder.path().join("disk.xfs"));
//! # std::fs::create_dir(&source)?;
//! # std::fs::write(source.join("file"), "contents")?;
//! use xebec::ImageBuilder;
//!
//! let built = ImageBuilder::new(&image).from_directory(&source).reproducible(true).build()?;
//! assert_eq!(built.report.files, 2); // the root directory and one file
//!
//! let report = xebec::check::check_path(&image)?;
//! assert!(report.is_clean(), "{:?}", report.findings);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Open a volume, change it, make the change durable, and unmount:
//!
//! ```
//! use std::sync::Arc;
//! use xebec::device::MemoryDevice;
//! use xebec::{Dir, Options, Volume, WatchEvent, mkfs};
//!
//! let device = Arc::new(MemoryDevice::new(64 << 20)); // or Volume::open_path("disk.xfs")
//! mkfs::format(&*device, &mkfs::Options::default())?;
//!
//! let volume = Volume::open(device, Options::default())?;
//! let root = Dir::root(&volume)?;
//! root.create_dir("etc")?;
//! root.write("etc/motd", "Welcome\n")?;
//! let watch = root.open_dir("etc")?.watch()?; // as inotify does
//! root.rename("etc/motd", &root, "etc/issue")?;
//! assert!(matches!(watch.recv()?, WatchEvent::MovedFrom { .. }));
//! volume.sync()?;
//! drop(root);
//! volume.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Copy an image file, which shares blocks where the host can, and cancel it if it takes too long:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let (source, image) = (folder.path().join("build"), folder.path().join("base.xfs"));
//! # let copy = folder.path().join("machine-1.xfs");
//! # std::fs::create_dir(&source)?;
//! # xebec::ImageBuilder::new(&image).from_directory(&source).build()?;
//! use std::ops::ControlFlow;
//! use std::time::{Duration, Instant};
//! use xebec::{ImageClone, Volume};
//!
//! let started = Instant::now();
//! let cloned = ImageClone::new(&image, &copy)
//!     .progress(|_bytes| match started.elapsed() < Duration::from_secs(3600) {
//!         true => ControlFlow::Continue(()),
//!         false => ControlFlow::Break(()),
//!     })
//!     .create()?;
//!
//! let volume = Volume::open_path(&copy)?;
//! assert_eq!(volume.identity()?.uuid, cloned.uuid); // a new one: both can be mounted
//! volume.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Extract a directory, with progress:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let (source, image) = (folder.path().join("build"), folder.path().join("disk.xfs"));
//! # let out = folder.path().join("out");
//! # std::fs::create_dir_all(source.join("etc"))?;
//! # std::fs::write(source.join("etc/motd"), "Welcome\n")?;
//! # xebec::ImageBuilder::new(&image).from_directory(&source).build()?;
//! use xebec::{Counts, Extraction, Notice, Progress};
//!
//! struct Terminal;
//!
//! impl Progress for Terminal {
//!     fn advance(&self, done: Counts) {
//!         print!("\r{} files, {} bytes", done.files, done.bytes);
//!     }
//!
//!     fn notice(&self, notice: &Notice) {
//!         eprintln!("{notice}");
//!     }
//! }
//!
//! let report = Extraction::open(&image)?.path(b"/etc")?.progress(&Terminal).to_directory(&out)?;
//! assert_eq!((report.files, report.failed), (2, 0));
//! assert_eq!(std::fs::read(out.join("motd"))?, b"Welcome\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Copy a tree into an open volume, with all metadata:
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let source = folder.path().join("www");
//! # std::fs::create_dir(&source)?;
//! # std::fs::write(source.join("index.html"), "Welcome")?;
//! # let device = std::sync::Arc::new(xebec::device::MemoryDevice::new(64 << 20));
//! # xebec::mkfs::format(&*device, &xebec::mkfs::Options::default())?;
//! # let volume = xebec::Volume::open(device, xebec::Options::default())?;
//! use xebec::{CopyEvent, CopyRules, CopySource, TreeCopy};
//!
//! let copy = TreeCopy::new(CopySource::Host, &volume).rules(CopyRules::archive());
//! let source = source.as_os_str().as_encoded_bytes();
//! let report = copy.run(&[source], "/srv", &mut |event| match event {
//!     CopyEvent::Copying { to, .. } => println!("{}", to.escape_ascii()),
//!     CopyEvent::Failed(error) => eprintln!("{error}"),
//!     _ => {}
//! })?;
//! assert_eq!((report.files, report.failed), (2, 0)); // `/srv` did not exist: it is the copy of `www`
//! assert!(volume.resolve(b"/srv/index.html", false).is_ok());
//! volume.unmount()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod check;
#[cfg(feature = "remote")]
pub mod remote;

pub use base::errno::{self, Errno};
pub use base::time::{Clock, FixedClock, SystemClock, Time};
pub use base::{AgBlock, AgIno, AgNumber, Daddr, FileBlock, FsBlock, Ino, Lsn};
pub use format::compatibility::Reader;
pub use format::inode::{FileType, flags as inode_flags};
pub use format::{Damage, Geometry, Place};
pub use transfer::{
    self, Archive, BuiltImage, Cancel, Compressed, Compression, Container, CopyError, CopyEvent, CopyInto,
    CopyReason, CopyReport, CopyRules, CopySide, CopySource, CopyTarget, Counts, Directory,
    Error as TransferError, Excludes, ExtractReport, Extraction, Follow, FreeSpace, ImageBuilder,
    ImportReport, Labels, Notice, NoticeKind, Overrides, Phase, Preserve, Progress, Source, TreeCopy,
    TreeDifference, TreeSync, Writer, difference,
};
pub use volume::{
    Access, AsPath, BlockReserve, BulkWriter, CloneError, ClonedImage, ContentsOptions, Cookie, Credentials,
    DeviceNumber, Dir, DirEntry, DirtyLimit, Entry, Error, File, FileId, Handle, ImageClone, ImageError,
    ImageOptions, Locks, MemoryBudget, MemoryStatistics, Metadata, NewFile, NewFileType, OpenOptions,
    Options, ReadDir, ReclaimPolicy, Rename, Resolve, Result, Scope, SetAttribute, SetMetadata, Settings,
    Statistics, UncachedStat, Usage, Volume, Watch, WatchEvent, WatchOptions, WatchedName, features,
    identity, image, open_image, open_image_on, resize, settings, statistics, trim,
};

/// The order in which dirty files are written back ([`ContentsOptions::order`]).
pub mod writeback {
    pub use volume::{ByAge, ByInode, ByPlace, WritebackCandidate, WritebackOrder};
}

/// Devices: the storage of volumes.
pub mod device {
    pub use block::{
        Content, ContentClass, Copied, CountedDevice, Device, DeviceCounts, DeviceError, Durability,
        FileDevice, Io, LockHolder, MemoryDevice, MountMark, NewFile, OpenError, OpenImageOptions,
        OpenOptions, Operation, OverlayDevice, Qcow2Device, ReadRequest, ReplacedFile, WindowDevice,
        WriteRequest, open_disk, open_image, partitions, probe, write_gpt, write_qcow2,
    };
}

/// Creating empty volumes, byte for byte as `mkfs.xfs` does.
pub mod mkfs {
    pub use ::mkfs::{LogLocation, LogOptions, MkfsError, Options, Plan, Stripe, format, write};
}

/// Reading volumes without the engine, as far as damage allows.
pub mod reader {
    pub use read::{
        AclNames, Error, FinalSymlink, Inode, InodeReader, Listing, ListingItem, Metadata, Result, Segment,
        Segments, Volume, Xattr, for_each_xattr, get_xattr, read_at, read_link, resolve,
    };
}
