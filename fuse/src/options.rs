//! Mount options (`-o`).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use base::lock::Locks;
use base::sizes;
use xebec::ReclaimPolicy;

use crate::mount::MountConfig;
use crate::volume_operations::idmap::{IdMap, IdMaps, IdRange};

/// Parses `PORT`, which means the loopback, or `ADDRESS:PORT`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().map(|port| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse())
        .map_err(|_| format!("\"{text}\" is neither PORT (on the loopback) nor ADDRESS:PORT"))
}

fn percent(text: &str) -> Result<u32, String> {
    let percent = text.parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.ok_or_else(|| format!("\"{text}\" is not a percentage from 1 to 100"))
}

fn policy(text: &str) -> Result<ReclaimPolicy, String> {
    let named = ReclaimPolicy::NAMES.iter().find(|(name, _)| *name == text);
    let names = || ReclaimPolicy::NAMES.map(|(name, _)| name).join(", ");
    named.map(|(_, policy)| *policy).ok_or_else(|| format!("\"{text}\" is none of {}", names()))
}

/// Options of mount(8) and of XFS that are accepted and ignored.
const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "relatime",
    "strictatime",
    "lazytime",
    "nolazytime",
    "diratime",
    "nodiratime",
    "loop",
    "nouuid",
    "attr2",
    "inode64",
    "largeio",
    "nolargeio",
    "noquota",
    "default_permissions",
    "discard",
    "nodiscard",
    "silent",
];
const IGNORED_WITH_VALUE: &[&str] = &["logbufs", "logbsize", "allocsize", "comment", "subtype"];

const NORECOVERY: &str = "a dirty log is always replayed: use -o ro, which replays it in memory and does not change \
    the image, or read files without replay (xebec ls --no-replay, xebec cat --no-replay)";

/// Validates one option.
///
/// # Errors
/// A message about an invalid option.
pub fn validate(option: &str) -> Result<String, String> {
    MountOptions::default().add(option).map(|()| option.into())
}

/// All mount options. A later option overrides an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Flags of the mount.
    pub mount: MountConfig,
    /// Cache writes in the kernel.
    pub writeback: bool,
    /// Device of an external log.
    pub log_device: Option<PathBuf>,
    /// Partition number.
    pub partition: Option<u32>,
    /// Offset of the volume in bytes.
    pub offset: Option<u64>,
    /// Number of worker threads.
    pub threads: Option<usize>,
    /// Bytes of memory for file data, metadata, inodes and names.
    pub memory: Option<u64>,
    /// Limit of dirty data in percent of the memory for file data.
    pub dirty_ratio: Option<u32>,
    /// Dirty data above which everything is written back, likewise.
    pub dirty_background_ratio: Option<u32>,
    /// What reclaim does with dirty data.
    pub reclaim: ReclaimPolicy,
    /// Age in seconds at which changes are stable.
    pub commit_s: Option<u32>,
    /// Locks of the names and inodes in memory.
    pub locks: Locks,
    /// Address of the HTTP server for metrics.
    pub metrics: Option<SocketAddr>,
    /// Mapping of user and group ids.
    pub id_maps: IdMaps,
}

impl MountOptions {
    /// Parses and combines options. For unprivileged users `nosuid` and `nodev` are the default. With `idmap`, a
    /// program of root may have been created by another user, so that `nosuid` is the default, too.
    ///
    /// # Errors
    /// A message about an invalid option, or about ranges of ids that overlap.
    pub fn new<T: AsRef<str>>(options: &[T]) -> Result<Self, String> {
        let mut all = Self::default();
        all.mount.no_suid = !rustix::process::geteuid().is_root();
        all.mount.no_dev = all.mount.no_suid;
        options.iter().try_for_each(|option| all.add(option.as_ref()))?;
        let has_suid_option = options.iter().any(|option| matches!(option.as_ref(), "suid" | "nosuid"));
        all.mount.no_suid |= !all.id_maps.is_empty() && !has_suid_option;
        Ok(all)
    }

    fn add(&mut self, option: &str) -> Result<(), String> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let number = |value: &str| value.parse::<u64>().map_err(|_| format!("\"{value}\" is not a number"));
        let mount = &mut self.mount;
        match (name, value) {
            ("ro" | "rw", None) => mount.read_only = name == "ro",
            ("allow_other", None) => mount.allow_other = true,
            ("suid" | "nosuid", None) => mount.no_suid = name == "nosuid",
            ("dev" | "nodev", None) => mount.no_dev = name == "nodev",
            ("exec" | "noexec", None) => mount.no_exec = name == "noexec",
            ("atime" | "noatime", None) => mount.no_atime = name == "noatime",
            ("fsname", Some(name)) => mount.source = name.into(),
            ("writeback_cache", None) => self.writeback = true,
            ("logdev", Some(path)) => self.log_device = Some(path.into()),
            ("partition", Some(value)) => {
                let number = u32::try_from(number(value)?).map_err(|_| "invalid partition number")?;
                self.partition = Some(number);
            }
            ("offset", Some(value)) => self.offset = Some(sizes::parse(value)?),
            ("threads", Some(value)) => match number(value)? {
                threads @ 1..=1024 => self.threads = Some(threads as usize),
                _ => return Err("the number of threads must be 1 to 1024".into()),
            },
            ("memory", Some(value)) => self.memory = Some(sizes::parse(value)?),
            ("dirty_ratio", Some(value)) => self.dirty_ratio = Some(percent(value)?),
            ("dirty_background_ratio", Some(value)) => self.dirty_background_ratio = Some(percent(value)?),
            ("reclaim", Some(name)) => self.reclaim = policy(name)?,
            // `commit=0` selects the default interval, as for ext4.
            ("commit", Some(value)) => {
                let seconds = u32::try_from(number(value)?).map_err(|_| "too many seconds")?;
                self.commit_s = Some(seconds).filter(|seconds| *seconds > 0);
            }
            ("locks", Some("fine")) => self.locks = Locks::Fine,
            ("locks", Some("coarse")) => self.locks = Locks::Coarse,
            ("idmap", Some(value)) => self.add_idmap(value)?,
            ("metrics", Some(value)) => self.metrics = Some(address(value)?),
            ("norecovery", None) => return Err(NORECOVERY.into()),
            (name, None) if IGNORED.contains(&name) || name.starts_with("x-") => {}
            (name, Some(_)) if IGNORED_WITH_VALUE.contains(&name) || name.starts_with("x-") => {}
            _ => return Err("unknown option (see xebec mount --help)".into()),
        }
        Ok(())
    }

    fn add_idmap(&mut self, text: &str) -> Result<(), String> {
        let root_to = |host| IdRange { volume: 0, host, count: 1 };
        let (users, groups) = match text.split_once(':') {
            None if text == "user" => {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                (Some(root_to(user.as_raw())), Some(root_to(group.as_raw())))
            }
            Some(("u", range)) => (Some(range.parse()?), None),
            Some(("g", range)) => (None, Some(range.parse()?)),
            _ => (Some(text.parse()?), Some(text.parse()?)),
        };
        let add = |map: &mut IdMap, range| map.add(range).map_err(|error| format!("-o idmap: {error}"));
        users.map_or(Ok(()), |range| add(&mut self.id_maps.users, range))?;
        groups.map_or(Ok(()), |range| add(&mut self.id_maps.groups, range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<MountOptions, String> {
        MountOptions::new(&text.split(',').collect::<Vec<_>>())
    }

    #[test]
    fn later_options_override_earlier_ones() {
        let all = all("ro,nosuid,rw,suid,noatime,x-systemd.automount,threads=3").unwrap();
        assert!(!all.mount.read_only && !all.mount.no_suid && all.mount.no_atime);
        assert_eq!(all.threads, Some(3));
    }

    #[test]
    fn idmap_implies_nosuid() {
        assert!(all("idmap=0:1000").unwrap().mount.no_suid);
        assert!(!all("idmap=0:1000,suid").unwrap().mount.no_suid);
        assert!(all("idmap=0:1000,idmap=0:2000").unwrap_err().contains("0:1000:1"));
    }

    #[test]
    fn values_are_parsed() {
        let text = "ro,allow_other,nodev,noexec,writeback_cache,logdev=/dev/a,partition=3,offset=1m,memory=1g,\
            locks=coarse,dirty_ratio=40,dirty_background_ratio=10,reclaim=only-in-trouble,commit=9";
        let expected = MountOptions {
            mount: MountConfig {
                source: "a=b".into(),
                allow_other: true,
                read_only: true,
                no_suid: true,
                no_dev: true,
                no_exec: true,
                ..MountConfig::default()
            },
            writeback: true,
            log_device: Some("/dev/a".into()),
            partition: Some(3),
            offset: Some(1 << 20),
            memory: Some(1 << 30),
            dirty_ratio: Some(40),
            dirty_background_ratio: Some(10),
            reclaim: ReclaimPolicy::OnlyInTrouble,
            commit_s: Some(9),
            locks: Locks::Coarse,
            metrics: Some(([127, 0, 0, 1], 9100).into()),
            id_maps: all("idmap=1:2:3,idmap=g:5:6:7").unwrap().id_maps,
            ..MountOptions::default()
        };
        let all = all(&format!(
            "{text},nosuid,fsname=a=b,idmap=u:1:2:3,idmap=g:1:2:3,idmap=g:5:6:7,metrics=9100,logbufs=8"
        ));
        assert_eq!(all, Ok(expected));
        assert_eq!(self::all("commit=9,commit=0").unwrap().commit_s, None);
        assert_eq!(validate("metrics=[::1]:9100").as_deref(), Ok("metrics=[::1]:9100"));
    }

    #[test]
    fn unknown_options_are_refused() {
        for text in [
            "",
            "suid=1",
            "threads=0",
            "threads=many",
            "nosuchthing",
            "partition",
            "offset=",
            "metrics=host:9",
            "idmap=1",
            "commit",
            "commit=-1",
            "locks=both",
            "dirty_ratio=0",
            "dirty_ratio=101",
            "reclaim=always",
        ] {
            assert!(validate(text).is_err(), "{text}");
        }
    }

    /// `norecovery` was accepted, and the log was replayed nevertheless.
    #[test]
    fn norecovery_is_refused_with_the_next_step() {
        let message = all("ro,norecovery").unwrap_err();
        assert!(message.contains("-o ro") && message.contains("--no-replay"), "{message}");
    }
}
