//! Errors, each with an errno and what to do about it.

use std::fmt;

use base::errno::{
    EACCES, EAGAIN, EBUSY, EDQUOT, EEXIST, EINVAL, ENOENT, ENOSPC, ENOTEMPTY, EOPNOTSUPP, EPERM, EROFS,
    ESHUTDOWN, ETIMEDOUT, Errno,
};

/// An image, or its cluster, that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RbdError {
    /// Not the URL of an image.
    Url {
        /// The URL, without its options: they may contain keys.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A library of Ceph is not installed, or cannot be loaded.
    Library {
        /// Its file.
        library: &'static str,
        /// The reason.
        reason: String,
    },
    /// The library is older than Ceph 15.
    Function {
        /// Its file.
        library: &'static str,
        /// What it lacks.
        function: &'static str,
    },
    /// The configuration cannot be read.
    Configuration {
        /// The file, or what else it was read from.
        source: String,
        /// The errno.
        errno: Errno,
    },
    /// Ceph does not accept an option of the configuration.
    Setting {
        /// The option.
        name: String,
        /// Its value; `...` instead of a key.
        value: String,
        /// The errno.
        errno: Errno,
    },
    /// No connection to the cluster.
    Connect {
        /// The user, as `client.admin`.
        user: String,
        /// The configuration file, if one was named.
        configuration: Option<String>,
        /// The errno.
        errno: Errno,
    },
    /// The pool cannot be opened.
    Pool {
        /// Its name.
        pool: String,
        /// The errno.
        errno: Errno,
    },
    /// An operation on an image failed.
    Image {
        /// The operation, as a verb.
        action: &'static str,
        /// URL of the image.
        image: String,
        /// The errno.
        errno: Errno,
    },
    /// The URL names a snapshot, and the operation is one on a whole image.
    Snapshot {
        /// The operation, as a verb.
        action: &'static str,
        /// The URL.
        image: String,
    },
    /// A client whose lock is to be taken cannot be locked out of the cluster.
    Fence {
        /// URL of the image.
        image: String,
        /// Address of the client.
        owner: String,
        /// The errno.
        errno: Errno,
    },
    /// This client has the image open for changes already, and cannot take it over from itself.
    Own {
        /// URL of the image.
        image: String,
    },
    /// Another client has the image open for changes.
    Locked {
        /// URL of the image.
        image: String,
        /// Address of the client, if it is known.
        owner: Option<String>,
    },
    /// The image has no exclusive lock.
    NoExclusiveLock {
        /// URL of the image.
        image: String,
    },
}

impl RbdError {
    /// The errno that a system call would have returned.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Url { .. } | Self::Snapshot { .. } => EINVAL,
            Self::Library { .. } | Self::Function { .. } | Self::NoExclusiveLock { .. } => EOPNOTSUPP,
            Self::Configuration { errno, .. }
            | Self::Setting { errno, .. }
            | Self::Connect { errno, .. }
            | Self::Pool { errno, .. }
            | Self::Image { errno, .. }
            | Self::Fence { errno, .. } => *errno,
            Self::Own { .. } => EBUSY,
            Self::Locked { .. } => EAGAIN,
        }
    }
}

impl fmt::Display for RbdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, reason } => {
                write!(
                    f,
                    "{url}: {reason} (the form is rbd://POOL/[NAMESPACE/]IMAGE[@SNAPSHOT][?OPTION=VALUE&...])"
                )
            }
            Self::Library { library, reason } => write!(
                f,
                "images of Ceph need {library}, which cannot be loaded: {reason} (install it: apt-get install \
                 librbd1, or dnf install librbd1)"
            ),
            Self::Function { library, function } => {
                write!(f, "{library} lacks {function}: it is older than Ceph 15 (install a newer librbd1)")
            }
            Self::Configuration { source, errno } => {
                write!(f, "cannot read the configuration of Ceph in {source}: {}", message(*errno))
            }
            Self::Setting { name, value, errno: ENOENT } => {
                write!(f, "{name}={value}: Ceph has no option of this name")
            }
            Self::Setting { name, value, errno } => {
                write!(f, "{name}={value}: Ceph does not accept this value: {}", message(*errno))
            }
            Self::Connect { user, configuration, errno } => {
                let from = configuration.as_deref().unwrap_or("the default configuration");
                write!(f, "cannot connect to the Ceph cluster as {user} ({from}): {}", message(*errno))?;
                f.write_str(connect_advice(*errno))
            }
            Self::Pool { pool, errno: ENOENT } => {
                write!(f, "there is no pool {pool:?} (list pools: ceph osd pool ls)")
            }
            Self::Pool { pool, errno } => write!(f, "cannot open the pool {pool:?}: {}", message(*errno)),
            Self::Image { action, image, errno } => {
                write!(f, "{image}: cannot {action}: {}{}", message(*errno), advice(*errno))
            }
            Self::Snapshot { action, image } => {
                write!(f, "{image}: cannot {action}: this names a snapshot (without @SNAPSHOT: the image)")
            }
            Self::Fence { image, owner, errno } => write!(
                f,
                "{image}: cannot lock {owner} out of the cluster: {} (the user needs the capability mon 'profile rbd')",
                message(*errno)
            ),
            Self::Own { image } => {
                write!(f, "{image}: this program has it open for changes already: it cannot take it over")
            }
            Self::Locked { image, owner } => {
                let owner = owner.as_deref().unwrap_or("another client");
                write!(
                    f,
                    "{image}: {owner} has it open for changes (a snapshot can be read meanwhile; the lock of a client \
                     that died ends after 30 seconds: --wait 60; to lock out a client that does not answer: \
                     --take-over)"
                )
            }
            Self::NoExclusiveLock { image } => write!(
                f,
                "{image}: the image lacks the feature exclusive-lock, without which two clients could write to it \
                 (rbd feature enable POOL/IMAGE exclusive-lock)"
            ),
        }
    }
}

impl std::error::Error for RbdError {}

/// The text of the system for an errno, and its name.
pub fn message(errno: Errno) -> String {
    let text = match errno {
        EACCES | EPERM => "permission denied",
        EAGAIN => "try again",
        EBUSY => "it is in use",
        EDQUOT => "the quota of the pool is exceeded",
        EEXIST => "it exists",
        EINVAL => "invalid argument",
        ENOENT => "not found",
        ENOSPC => "no space is left in the cluster",
        ENOTEMPTY => "it is not empty",
        EROFS => "it is read-only, or locked by another client",
        ESHUTDOWN => "this client is locked out of the cluster",
        ETIMEDOUT => "no answer in the time limit",
        _ => return std::io::Error::from_raw_os_error(errno.get()).to_string(),
    };
    format!("{text} ({errno})")
}

/// What to do about a failed operation on an image, in parentheses; empty if the message says all.
pub fn advice(errno: Errno) -> &'static str {
    match errno {
        EACCES | EPERM => {
            " (the user needs the capabilities mon 'profile rbd' and osd 'profile rbd pool=POOL')"
        }
        EBUSY => " (another client has it open, or a clone needs it: rbd status, rbd children)",
        EDQUOT | ENOSPC => " (ceph df)",
        ENOENT => " (list images: rbd ls POOL; snapshots: rbd snap ls POOL/IMAGE)",
        ENOTEMPTY => " (remove its snapshots first)",
        ESHUTDOWN => {
            " (another client took the image over; what was not flushed is lost here: unmount, and open it again)"
        }
        ETIMEDOUT => " (is the cluster up? ceph health detail)",
        _ => "",
    }
}

/// What to do about a connection that failed.
fn connect_advice(errno: Errno) -> &'static str {
    match errno {
        ENOENT => {
            " (no monitors are known, or there is no keyring: name the configuration with CEPH_CONF or ?conf=FILE, \
             and the user with ?id=NAME)"
        }
        EACCES | EPERM | EOPNOTSUPP => {
            " (the cluster does not know this user, or there is no keyring with its key: ceph auth get, ?id=NAME, \
             ?keyring=FILE)"
        }
        ETIMEDOUT => {
            " (the monitors do not answer: check the addresses in mon_host, and the network; ceph -s; the limit is \
             client_mount_timeout)"
        }
        _ => "",
    }
}
