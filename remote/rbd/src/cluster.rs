//! A connection to a cluster, and a pool in it.
//!
//! The configuration is found as the command `rbd` finds it, each source overriding those before it: the file
//! (`CEPH_CONF`, `/etc/ceph/CLUSTER.conf`, `~/.ceph/CLUSTER.conf`), `CEPH_KEYRING`, `CEPH_ARGS`, the options of the
//! URL. The cache of librbd is off, and blocklisting on, in any case.

use std::env::VarError;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use base::errno::{EINVAL, ENOENT, Errno};

use crate::error::RbdError;
use crate::library::{Libraries, RawCluster, RawPool};
use crate::url::RbdUrl;

/// How long to wait for the monitors by default. Ceph's own default is five minutes.
const CONNECT_SECONDS: u64 = 30;
/// How long a client is locked out of the cluster: ten years. Ceph's own default is one hour
/// (`mon_osd_blocklist_default_expire`): a client that stood still for longer would then carry out its old writes.
const FENCE_SECONDS: u64 = 10 * 365 * 24 * 3600;

/// A client of a cluster.
struct Cluster {
    libraries: &'static Libraries,
    raw: *mut RawCluster,
}

// SAFETY: functions of librados may be called from any thread; the configuration is changed only before the value is
// shared.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// A pool, and a namespace in it.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<SharedPool>,
}

struct SharedPool {
    cluster: Cluster,
    raw: *mut RawPool,
}

// SAFETY: functions of librados and librbd may be called from any thread; the namespace is set before the value is
// shared.
unsafe impl Send for SharedPool {}
// SAFETY: as above.
unsafe impl Sync for SharedPool {}

/// What must be known before the configuration is read.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    cluster: String,
    /// Such as `client.admin`.
    user: String,
    configuration: Option<String>,
}

impl Identity {
    /// From `CEPH_ARGS` and the options of a URL. Returns the options that are left.
    fn new(ceph_args: &str, options: &[(String, String)]) -> (Self, Vec<(String, String)>) {
        let mut identity =
            Self { cluster: "ceph".to_owned(), user: "client.admin".to_owned(), configuration: None };
        let mut words = ceph_args.split_whitespace();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let name = match name {
                "--id" | "--user" | "-i" => "id",
                "--name" | "-n" => "name",
                "--cluster" => "cluster",
                "--conf" | "-c" => "conf",
                _ => continue,
            };
            if let Some(value) = value.or_else(|| words.next()) {
                identity.set(name, value);
            }
        }
        let left = options.iter().filter(|(name, value)| !identity.set(name, value)).cloned().collect();
        (identity, left)
    }

    /// Returns whether it is an option of this type.
    fn set(&mut self, name: &str, value: &str) -> bool {
        match name {
            "id" => self.user = format!("client.{value}"),
            "name" => self.user = value.to_owned(),
            "cluster" => self.cluster = value.to_owned(),
            "conf" => self.configuration = Some(value.to_owned()),
            _ => return false,
        }
        true
    }
}

/// Options whose values are not repeated in messages.
const SECRETS: &[&str] = &["key", "keyfile"];

impl Cluster {
    fn connect(options: &[(String, String)], timeout: Option<Duration>) -> Result<Self, RbdError> {
        let ceph_args = match std::env::var("CEPH_ARGS") {
            Ok(arguments) => arguments,
            Err(VarError::NotPresent) => String::new(),
            // The library would use it, and this crate not.
            Err(VarError::NotUnicode(_)) => {
                let source = "CEPH_ARGS (it is not UTF-8)".to_owned();
                return Err(RbdError::Configuration { source, errno: EINVAL });
            }
        };
        let libraries = Libraries::get()?;
        let (identity, options) = Identity::new(&ceph_args, options);
        let failed = |errno| RbdError::Connect {
            user: identity.user.clone(),
            configuration: identity.configuration.clone(),
            errno,
        };
        let (cluster, user) = (c_string(&identity.cluster), c_string(&identity.user));
        let (Some(cluster), Some(user)) = (cluster, user) else { return Err(failed(EINVAL)) };
        let mut raw = ptr::null_mut();
        // SAFETY: the strings end with NUL, and `raw` is a place for the handle.
        let result = unsafe { (libraries.rados.rados_create2)(&mut raw, cluster.as_ptr(), user.as_ptr(), 0) };
        check(result).map_err(failed)?;
        let cluster = Self { libraries, raw };
        cluster.read_configuration(&identity)?;
        cluster.limit_times(timeout)?;
        options.iter().try_for_each(|(name, value)| cluster.set(name, value))?;
        cluster.set_requirements()?;
        // SAFETY: the handle is valid and not connected.
        check(unsafe { (libraries.rados.rados_connect)(cluster.raw) }).map_err(failed)?;
        Ok(cluster)
    }

    fn read_configuration(&self, identity: &Identity) -> Result<(), RbdError> {
        let file = identity.configuration.as_deref();
        let path = file.map(|file| c_string(file).unwrap_or_default());
        // SAFETY: the handle is valid and not connected; the path is a C string, or null for the default files.
        let read = check(unsafe {
            let path = path.as_ref().map_or(ptr::null(), |path| path.as_ptr());
            (self.libraries.rados.rados_conf_read_file)(self.raw, path)
        });
        match read {
            // Everything may be in CEPH_ARGS or in the URL.
            Err(ENOENT) if file.is_none() && std::env::var_os("CEPH_CONF").is_none() => {}
            Err(errno) => {
                let source = file.map(str::to_owned).or_else(|| std::env::var("CEPH_CONF").ok());
                return Err(RbdError::Configuration { source: source.unwrap_or_default(), errno });
            }
            Ok(()) => {}
        }
        // SAFETY: as above; null stands for `CEPH_ARGS`.
        let parsed = unsafe { (self.libraries.rados.rados_conf_parse_env)(self.raw, ptr::null()) };
        check(parsed).map_err(|errno| RbdError::Configuration { source: "CEPH_ARGS".to_owned(), errno })
    }

    /// Monitors must answer in time. Requests to OSDs wait as the configuration says, by default without a limit: the
    /// cluster continues after a failure, and a request that was given up might still be carried out.
    fn limit_times(&self, timeout: Option<Duration>) -> Result<(), RbdError> {
        let seconds = timeout.map_or(CONNECT_SECONDS, |timeout| timeout.as_secs().max(1)).to_string();
        self.set("client_mount_timeout", &seconds)?;
        self.set("rados_mon_op_timeout", &seconds)?;
        match timeout {
            Some(_) => self.set("rados_osd_op_timeout", &seconds),
            None => Ok(()),
        }
    }

    /// What correctness depends on, whatever the configuration says.
    fn set_requirements(&self) -> Result<(), RbdError> {
        // With its cache, librbd returns from a write before the cluster has answered, and the next flush succeeds even
        // if the answer was an error: the write is lost without notice (librbd 16, `rbd_cache_policy` writearound).
        self.set("rbd_cache", "false")?;
        // Versions before 16 do not have a cache on the local disk.
        match self.set("rbd_persistent_cache_mode", "disabled") {
            Err(RbdError::Setting { errno: ENOENT, .. }) => {}
            set => set?,
        }
        // A client whose lock is broken must be locked out of the cluster. The option's name depends on the version.
        self.set("rbd_blocklist_on_break_lock", "true")
            .or_else(|_| self.set("rbd_blacklist_on_break_lock", "true"))
    }

    fn set(&self, name: &str, value: &str) -> Result<(), RbdError> {
        let shown = if SECRETS.contains(&name) { "..." } else { value };
        let failed = |errno| RbdError::Setting { name: name.to_owned(), value: shown.to_owned(), errno };
        let (Some(c_name), Some(c_value)) = (c_string(name), c_string(value)) else {
            return Err(failed(EINVAL));
        };
        // SAFETY: the handle is valid, and the strings end with NUL.
        let result =
            unsafe { (self.libraries.rados.rados_conf_set)(self.raw, c_name.as_ptr(), c_value.as_ptr()) };
        check(result).map_err(failed)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and all pools and images of it are closed: they own this value.
        unsafe { (self.libraries.rados.rados_shutdown)(self.raw) }
    }
}

impl Pool {
    /// Connects to the cluster of a URL, and opens the pool and namespace.
    ///
    /// A connection, and requests to monitors, fail after `timeout`, by default 30 seconds. If it is given, so do reads
    /// and writes.
    ///
    /// # Errors
    /// [`RbdError`].
    pub fn open(url: &RbdUrl, timeout: Option<Duration>) -> Result<Self, RbdError> {
        let cluster = Cluster::connect(&url.options, timeout)?;
        let failed = |errno| RbdError::Pool { pool: url.pool.clone(), errno };
        let (pool, namespace) = (c_string(&url.pool), c_string(&url.namespace));
        let (Some(pool), Some(namespace)) = (pool, namespace) else { return Err(failed(EINVAL)) };
        let rados = &cluster.libraries.rados;
        let mut raw = ptr::null_mut();
        // SAFETY: the cluster is connected; the strings end with NUL, and `raw` is a place for the handle.
        check(unsafe { (rados.rados_ioctx_create)(cluster.raw, pool.as_ptr(), &mut raw) }).map_err(failed)?;
        // SAFETY: the handle is valid and not shared yet.
        unsafe { (rados.rados_ioctx_set_namespace)(raw, namespace.as_ptr()) };
        Ok(Self { shared: Arc::new(SharedPool { cluster, raw }) })
    }

    pub(crate) fn libraries(&self) -> &'static Libraries {
        self.shared.cluster.libraries
    }

    /// The number of this client in the cluster.
    pub(crate) fn client_number(&self) -> u64 {
        // SAFETY: the handle is valid and connected.
        unsafe { (self.libraries().rados.rados_get_instance_id)(self.shared.cluster.raw) }
    }

    /// Locks a client out of the cluster for [`FENCE_SECONDS`]. The library locks it out, too, when it breaks a lock,
    /// but only for the default time: with `rbd_blocklist_expire_seconds`, version 16 fails with `EINVAL`. An entry
    /// that exists is not changed by a later one, so that this must come first.
    pub(crate) fn fence(&self, client: &str) -> Result<(), Errno> {
        if client.chars().any(|char| char.is_control() || matches!(char, '"' | '\\')) {
            return Err(EINVAL);
        }
        let add = |list: &str| {
            let command = format!(r#""prefix": "osd {list}", "{list}op": "add", "addr": "{client}""#);
            self.monitor_command(&format!(r#"{{{command}, "expire": {FENCE_SECONDS}.0}}"#))
        };
        // The name depends on the version.
        add("blocklist").or_else(|_| add("blacklist"))
    }

    fn monitor_command(&self, command: &str) -> Result<(), Errno> {
        let command = c_string(command).ok_or(EINVAL)?;
        let mut commands = [command.as_ptr()];
        let none = ptr::null_mut();
        // SAFETY: the cluster is connected; `commands` has one element, a C string; there is no input, and null means
        // that the output is not wanted.
        check(unsafe {
            (self.libraries().rados.rados_mon_command)(
                self.shared.cluster.raw,
                commands.as_mut_ptr(),
                commands.len(),
                ptr::null(),
                0,
                none,
                ptr::null_mut(),
                none,
                ptr::null_mut(),
            )
        })
    }

    /// Valid as long as this value.
    pub(crate) fn raw(&self) -> *mut RawPool {
        self.shared.raw
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and images on it are closed: they own a reference to this value.
        unsafe { (self.cluster.libraries.rados.rados_ioctx_destroy)(self.raw) }
    }
}

/// A result of librados or librbd: negative numbers are errors.
pub fn check(result: i32) -> Result<(), Errno> {
    if result < 0 { Err(Errno::new(result.saturating_neg())) } else { Ok(()) }
}

/// `None` if it contains NUL.
pub fn c_string(text: &str) -> Option<CString> {
    CString::new(text).ok()
}

/// Text from a library; bytes that are not UTF-8 are replaced.
pub fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(options: &[(&str, &str)]) -> Vec<(String, String)> {
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_user_and_the_file_come_from_the_environment_and_the_url() {
        let (identity, left) = Identity::new("", &[]);
        assert_eq!((identity.cluster.as_str(), identity.user.as_str()), ("ceph", "client.admin"));
        assert_eq!((identity.configuration, left.len()), (None, 0));
        let arguments = "--mon-host 1.2.3.4 --id backup -c /etc/other.conf --cluster=west --keyring /k";
        let (identity, left) = Identity::new(arguments, &[]);
        assert_eq!((identity.cluster.as_str(), identity.user.as_str()), ("west", "client.backup"));
        assert_eq!((identity.configuration.as_deref(), left.len()), (Some("/etc/other.conf"), 0));
        let options = pairs(&[("name", "client.me"), ("keyring", "/mine"), ("conf", "/my.conf")]);
        let (identity, left) = Identity::new(arguments, &options);
        assert_eq!(
            (identity.user.as_str(), identity.configuration.as_deref()),
            ("client.me", Some("/my.conf"))
        );
        assert_eq!(left, pairs(&[("keyring", "/mine")]));
    }
}
