//! The functions of librados and librbd, from the libraries of the system, loaded when the first image is opened.
//!
//! Names, parameters and constants are those of `rados/librados.h` and `rbd/librbd.h` of Ceph 16, which later versions
//! keep; `src/tests/declarations.rs` compares them with the headers. All functions exist since Ceph 15.

use std::ffi::{c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::RbdError;

/// Declares types of which C programs see only pointers.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])* #[repr(C)] pub struct $name { _opaque: [u8; 0] })*
    };
}

opaque! {
    /// `rados_t`: a client of a cluster.
    RawCluster;
    /// `rados_ioctx_t`: a pool, and a namespace in it.
    RawPool;
    /// `rbd_image_t`: an open image.
    RawImage;
    /// `rbd_completion_t`: an operation in flight.
    RawCompletion;
    /// `rbd_image_options_t`: options of a new image.
    RawImageOptions;
}

/// `rbd_snap_info_t`.
#[repr(C)]
pub struct RawSnapshot {
    pub id: u64,
    pub size: u64,
    pub name: *const c_char,
}

/// `rbd_image_watcher_t`.
#[repr(C)]
pub struct RawWatcher {
    pub address: *mut c_char,
    pub id: i64,
    pub cookie: u64,
}

/// `rbd_image_info_t`.
#[repr(C)]
pub struct RawInfo {
    pub size: u64,
    pub object_size: u64,
    pub objects: u64,
    pub order: c_int,
    pub block_name_prefix: [c_char; 24],
    pub parent_pool: i64,
    pub parent_name: [c_char; 96],
}

/// `rbd_callback_t`. It is never set: threads wait for completions.
pub type Callback = Option<unsafe extern "C" fn(*mut RawCompletion, *mut c_void)>;

/// `rbd_lock_mode_t`.
pub type LockMode = c_int;
/// `RBD_LOCK_MODE_EXCLUSIVE`: the lock stays with its owner, who refuses requests for it.
pub const LOCK_MODE_EXCLUSIVE: LockMode = 0;
/// `RBD_IMAGE_OPTION_FEATURES_SET`: features beside the default ones.
pub const OPTION_FEATURES_SET: c_int = 8;
/// `RBD_IMAGE_OPTION_CLONE_FORMAT`.
pub const OPTION_CLONE_FORMAT: c_int = 12;
/// `RBD_FEATURE_LAYERING`.
pub const FEATURE_LAYERING: u64 = 1 << 0;
/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
pub const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;

/// Declares the functions of one library, and how they are found in it.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident: $($function:ident($($type:ty),*) $(-> $result:ty)?;)*) => {
        $(#[$doc])*
        pub struct $table {
            $(pub $function: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl $table {
            fn find(library: &Library, name: &'static str) -> Result<Self, RbdError> {
                Ok(Self {
                    $($function: {
                        // SAFETY: the type is that of the function in the library's header (see the top of this file).
                        // The pointer outlives `library` only in `Libraries`, which is never dropped.
                        let found = unsafe { library.get(concat!(stringify!($function), "\0")) };
                        *found.map_err(|_| RbdError::Function { library: name, function: stringify!($function) })?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Functions of librados.
    Rados:
    rados_create2(*mut *mut RawCluster, *const c_char, *const c_char, u64) -> c_int;
    rados_conf_read_file(*mut RawCluster, *const c_char) -> c_int;
    rados_conf_parse_env(*mut RawCluster, *const c_char) -> c_int;
    rados_conf_set(*mut RawCluster, *const c_char, *const c_char) -> c_int;
    rados_connect(*mut RawCluster) -> c_int;
    rados_shutdown(*mut RawCluster);
    rados_get_instance_id(*mut RawCluster) -> u64;
    rados_mon_command(*mut RawCluster, *mut *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize,
        *mut *mut c_char, *mut usize) -> c_int;
    rados_ioctx_create(*mut RawCluster, *const c_char, *mut *mut RawPool) -> c_int;
    rados_ioctx_set_namespace(*mut RawPool, *const c_char);
    rados_ioctx_destroy(*mut RawPool);
}

functions! {
    /// Functions of librbd.
    Rbd:
    rbd_create4(*mut RawPool, *const c_char, u64, *mut RawImageOptions) -> c_int;
    rbd_clone3(*mut RawPool, *const c_char, *const c_char, *mut RawPool, *const c_char, *mut RawImageOptions) -> c_int;
    rbd_remove(*mut RawPool, *const c_char) -> c_int;
    rbd_image_options_create(*mut *mut RawImageOptions);
    rbd_image_options_set_uint64(*mut RawImageOptions, c_int, u64) -> c_int;
    rbd_image_options_destroy(*mut RawImageOptions);
    rbd_open(*mut RawPool, *const c_char, *mut *mut RawImage, *const c_char) -> c_int;
    rbd_open_read_only(*mut RawPool, *const c_char, *mut *mut RawImage, *const c_char) -> c_int;
    rbd_close(*mut RawImage) -> c_int;
    rbd_get_size(*mut RawImage, *mut u64) -> c_int;
    rbd_get_features(*mut RawImage, *mut u64) -> c_int;
    rbd_get_stripe_count(*mut RawImage, *mut u64) -> c_int;
    rbd_stat(*mut RawImage, *mut RawInfo, usize) -> c_int;
    rbd_resize(*mut RawImage, u64) -> c_int;
    rbd_lock_acquire(*mut RawImage, LockMode) -> c_int;
    rbd_lock_break(*mut RawImage, LockMode, *const c_char) -> c_int;
    rbd_lock_get_owners(*mut RawImage, *mut LockMode, *mut *mut c_char, *mut usize) -> c_int;
    rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
    rbd_watchers_list(*mut RawImage, *mut RawWatcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup(*mut RawWatcher, usize);
    rbd_snap_create(*mut RawImage, *const c_char) -> c_int;
    rbd_snap_remove(*mut RawImage, *const c_char) -> c_int;
    rbd_snap_list(*mut RawImage, *mut RawSnapshot, *mut c_int) -> c_int;
    rbd_snap_list_end(*mut RawSnapshot);
    rbd_aio_create_completion(*mut c_void, Callback, *mut *mut RawCompletion) -> c_int;
    rbd_aio_wait_for_complete(*mut RawCompletion) -> c_int;
    rbd_aio_get_return_value(*mut RawCompletion) -> isize;
    rbd_aio_release(*mut RawCompletion);
    rbd_aio_readv(*mut RawImage, *const IoSliceMut<'_>, c_int, u64, *mut RawCompletion) -> c_int;
    rbd_aio_writev(*mut RawImage, *const IoSlice<'_>, c_int, u64, *mut RawCompletion) -> c_int;
    rbd_aio_write_zeroes(*mut RawImage, u64, usize, *mut RawCompletion, c_int, c_int) -> c_int;
    rbd_aio_discard(*mut RawImage, u64, u64, *mut RawCompletion) -> c_int;
    rbd_aio_flush(*mut RawImage, *mut RawCompletion) -> c_int;
}

/// The functions of both libraries.
pub struct Libraries {
    pub rados: Rados,
    pub rbd: Rbd,
    /// Never unloaded: the libraries have threads of their own, and destructors that run at exit.
    _loaded: [Library; 2],
}

impl Libraries {
    /// Loads the libraries, or returns them if they are loaded. If that failed, it is not tried again.
    pub fn get() -> Result<&'static Self, RbdError> {
        static LIBRARIES: OnceLock<Result<Libraries, RbdError>> = OnceLock::new();
        LIBRARIES.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, RbdError> {
        let (rados_library, rbd_library) = (open("librados.so.2")?, open("librbd.so.1")?);
        let rados = Rados::find(&rados_library, "librados.so.2")?;
        let rbd = Rbd::find(&rbd_library, "librbd.so.1")?;
        Ok(Self { rados, rbd, _loaded: [rados_library, rbd_library] })
    }
}

/// Opens a library in the directories of the system.
pub fn open(name: &'static str) -> Result<Library, RbdError> {
    // SAFETY: the initializers of these libraries have no requirements; all symbols that they need are in the
    // libraries that they name.
    unsafe { Library::new(name) }.map_err(|error| RbdError::Library { library: name, reason: reason(&error) })
}

/// The message of the dynamic linker.
fn reason(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.unwrap_or_else(|| error.to_string())
}
