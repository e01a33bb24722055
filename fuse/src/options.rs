//! Mount options (`-o`).

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use base::sizes;

use crate::mount::MountConfig;
use crate::volume_operations::idmap::{IdMaps, IdRange};

/// A mount option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountOption {
    /// `ro`, `rw`.
    ReadOnly(bool),
    /// `allow_other`.
    AllowOther,
    /// `suid`, `nosuid`.
    Suid(bool),
    /// `dev`, `nodev`.
    Dev(bool),
    /// `exec`, `noexec`.
    Exec(bool),
    /// `atime`, `noatime`.
    Atime(bool),
    /// Cache writes in the kernel.
    Writeback,
    /// Device of an external log.
    LogDevice(PathBuf),
    /// Partition number.
    Partition(u32),
    /// Offset of the volume in bytes.
    Offset(u64),
    /// Number of worker threads.
    Threads(usize),
    /// Bytes of memory for file data and metadata.
    Cache(u64),
    /// Source in the mount table.
    Source(String),
    /// `idmap`.
    IdMap(IdMapOption),
    /// Address of the HTTP server for metrics.
    Metrics(SocketAddr),
    /// An option that is ignored.
    Ignored,
}

/// The value of `idmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdMapOption {
    /// A range of user and group ids.
    Both(IdRange),
    /// A range of user ids.
    Users(IdRange),
    /// A range of group ids.
    Groups(IdRange),
    /// Root's ids are mapped to the mounting user.
    MountingUser,
}

fn parse_idmap(text: &str) -> Result<IdMapOption, String> {
    Ok(match text.split_once(':') {
        None if text == "user" => IdMapOption::MountingUser,
        Some(("u", range)) => IdMapOption::Users(range.parse()?),
        Some(("g", range)) => IdMapOption::Groups(range.parse()?),
        _ => IdMapOption::Both(text.parse()?),
    })
}

/// Parses `PORT`, which means the loopback, or `ADDRESS:PORT`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().map(|port| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse())
        .map_err(|_| format!("\"{text}\" is neither PORT (on the loopback) nor ADDRESS:PORT"))
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
    "norecovery",
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

/// Parses an option.
///
/// # Errors
/// A message about an invalid option.
pub fn parse(text: &str) -> Result<MountOption, String> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let number = |value: &str| value.parse::<u64>().map_err(|_| format!("\"{value}\" is not a number"));
    Ok(match (name, value) {
        ("ro", None) => MountOption::ReadOnly(true),
        ("rw", None) => MountOption::ReadOnly(false),
        ("allow_other", None) => MountOption::AllowOther,
        ("suid" | "nosuid", None) => MountOption::Suid(name == "suid"),
        ("dev" | "nodev", None) => MountOption::Dev(name == "dev"),
        ("exec" | "noexec", None) => MountOption::Exec(name == "exec"),
        ("atime" | "noatime", None) => MountOption::Atime(name == "atime"),
        ("writeback_cache", None) => MountOption::Writeback,
        ("logdev", Some(path)) => MountOption::LogDevice(path.into()),
        ("partition", Some(value)) => {
            MountOption::Partition(u32::try_from(number(value)?).map_err(|_| "invalid partition number")?)
        }
        ("offset", Some(value)) => MountOption::Offset(sizes::parse(value)?),
        ("threads", Some(value)) => match number(value)? {
            threads @ 1..=1024 => MountOption::Threads(threads as usize),
            _ => return Err("the number of threads must be 1 to 1024".into()),
        },
        ("cache", Some(value)) => MountOption::Cache(sizes::parse(value)?),
        ("idmap", Some(value)) => MountOption::IdMap(parse_idmap(value)?),
        ("metrics", Some(value)) => MountOption::Metrics(address(value)?),
        ("fsname", Some(name)) => MountOption::Source(name.into()),
        (name, None) if IGNORED.contains(&name) || name.starts_with("x-") => MountOption::Ignored,
        (name, Some(_)) if IGNORED_WITH_VALUE.contains(&name) || name.starts_with("x-") => {
            MountOption::Ignored
        }
        _ => return Err("unknown option (see xebec mount --help)".into()),
    })
}

/// The option as text that [`parse`] accepts.
impl fmt::Display for MountOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let no = |on: &bool| if *on { "" } else { "no" };
        match self {
            Self::ReadOnly(on) => f.write_str(if *on { "ro" } else { "rw" }),
            Self::AllowOther => f.write_str("allow_other"),
            Self::Suid(on) => write!(f, "{}suid", no(on)),
            Self::Dev(on) => write!(f, "{}dev", no(on)),
            Self::Exec(on) => write!(f, "{}exec", no(on)),
            Self::Atime(on) => write!(f, "{}atime", no(on)),
            Self::Writeback => f.write_str("writeback_cache"),
            Self::LogDevice(path) => write!(f, "logdev={}", path.display()),
            Self::Partition(number) => write!(f, "partition={number}"),
            Self::Offset(bytes) => write!(f, "offset={bytes}"),
            Self::Threads(threads) => write!(f, "threads={threads}"),
            Self::Cache(bytes) => write!(f, "cache={bytes}"),
            Self::Source(name) => write!(f, "fsname={name}"),
            Self::IdMap(IdMapOption::Both(range)) => write!(f, "idmap={range}"),
            Self::IdMap(IdMapOption::Users(range)) => write!(f, "idmap=u:{range}"),
            Self::IdMap(IdMapOption::Groups(range)) => write!(f, "idmap=g:{range}"),
            Self::IdMap(IdMapOption::MountingUser) => f.write_str("idmap=user"),
            Self::Metrics(address) => write!(f, "metrics={address}"),
            Self::Ignored => f.write_str("defaults"),
        }
    }
}

/// All mount options. A later option overrides an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Bytes of memory for file data and metadata.
    pub cache: Option<u64>,
    /// Address of the HTTP server for metrics.
    pub metrics: Option<SocketAddr>,
    /// Mapping of user and group ids.
    pub id_maps: IdMaps,
}

impl MountOptions {
    /// Combines options. For unprivileged users `nosuid` and `nodev` are the default. With `idmap`, a program of root
    /// may have been created by another user, so that `nosuid` is the default, too.
    ///
    /// # Errors
    /// A message about ranges of ids that overlap.
    pub fn new(options: &[MountOption]) -> Result<Self, String> {
        let unprivileged = !rustix::process::geteuid().is_root();
        let mount = MountConfig { no_suid: unprivileged, no_dev: unprivileged, ..MountConfig::default() };
        let mut all = Self {
            mount,
            writeback: false,
            log_device: None,
            partition: None,
            offset: None,
            threads: None,
            cache: None,
            metrics: None,
            id_maps: IdMaps::default(),
        };
        options.iter().try_for_each(|option| all.add(option))?;
        let has_suid_option = options.iter().any(|option| matches!(option, MountOption::Suid(_)));
        all.mount.no_suid |= !all.id_maps.is_empty() && !has_suid_option;
        Ok(all)
    }

    fn add(&mut self, option: &MountOption) -> Result<(), String> {
        match option {
            MountOption::ReadOnly(read_only) => self.mount.read_only = *read_only,
            MountOption::AllowOther => self.mount.allow_other = true,
            MountOption::Suid(on) => self.mount.no_suid = !on,
            MountOption::Dev(on) => self.mount.no_dev = !on,
            MountOption::Exec(on) => self.mount.no_exec = !on,
            MountOption::Atime(on) => self.mount.no_atime = !on,
            MountOption::Writeback => self.writeback = true,
            MountOption::LogDevice(path) => self.log_device = Some(path.clone()),
            MountOption::Partition(number) => self.partition = Some(*number),
            MountOption::Offset(offset) => self.offset = Some(*offset),
            MountOption::Threads(threads) => self.threads = Some(*threads),
            MountOption::Cache(bytes) => self.cache = Some(*bytes),
            MountOption::Metrics(address) => self.metrics = Some(*address),
            MountOption::Source(name) => self.mount.source.clone_from(name),
            MountOption::IdMap(idmap) => {
                return self.add_idmap(*idmap).map_err(|error| format!("-o idmap: {error}"));
            }
            MountOption::Ignored => {}
        }
        Ok(())
    }

    fn add_idmap(&mut self, idmap: IdMapOption) -> Result<(), String> {
        let mine = |host| IdRange { volume: 0, host, count: 1 };
        let (user, group) = match idmap {
            IdMapOption::Both(range) => (Some(range), Some(range)),
            IdMapOption::Users(range) => (Some(range), None),
            IdMapOption::Groups(range) => (None, Some(range)),
            IdMapOption::MountingUser => {
                let group = rustix::process::getegid().as_raw();
                (Some(mine(rustix::process::geteuid().as_raw())), Some(mine(group)))
            }
        };
        user.map_or(Ok(()), |range| self.id_maps.users.add(range))?;
        group.map_or(Ok(()), |range| self.id_maps.groups.add(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_options_override_earlier_ones() {
        let options: Vec<MountOption> =
            ["ro", "nosuid", "rw", "suid", "noatime", "x-systemd.automount", "threads=3"]
                .iter()
                .map(|text| parse(text))
                .collect::<Result<_, _>>()
                .unwrap_or_default();
        let all = MountOptions::new(&options).unwrap();
        assert!(!all.mount.read_only && !all.mount.no_suid && all.mount.no_atime);
        assert_eq!(all.threads, Some(3));
    }

    #[test]
    fn idmap_implies_nosuid() {
        let all = |text: &str| {
            MountOptions::new(&text.split(',').map(|one| parse(one).unwrap()).collect::<Vec<_>>())
        };
        assert!(all("idmap=0:1000").unwrap().mount.no_suid);
        assert!(!all("idmap=0:1000,suid").unwrap().mount.no_suid);
        assert!(all("idmap=0:1000,idmap=0:2000").unwrap_err().contains("0:1000:1"));
    }

    #[test]
    fn options_are_displayed_as_parsed() {
        for text in [
            "ro",
            "rw",
            "allow_other",
            "suid",
            "nosuid",
            "nodev",
            "dev",
            "exec",
            "noexec",
            "atime",
            "noatime",
            "writeback_cache",
            "logdev=/dev/a,b",
            "partition=3",
            "offset=1048576",
            "threads=8",
            "cache=0",
            "fsname=a=b",
            "idmap=0:1000:1",
            "idmap=u:1:2:3",
            "idmap=g:5:6:7",
            "idmap=user",
            "metrics=127.0.0.1:9100",
            "metrics=[::1]:9100",
            "defaults",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(parse("cache=1g").unwrap().to_string(), "cache=1073741824");
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
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
