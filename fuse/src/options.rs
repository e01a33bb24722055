//! What follows `-o` on the command line of a mount.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use base::sizes;

use crate::mount::Wanted;
use crate::served::owners::{Owners, Range};

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing is changed.
    ReadOnly(bool),
    /// Other users may use it.
    AllowOther,
    /// Set-user-ID bits do something.
    Suid(bool),
    /// Device files do.
    Dev(bool),
    /// Programs run.
    Exec(bool),
    /// Reading leaves a time behind.
    Atime(bool),
    /// The kernel keeps what is written for a while.
    Writeback,
    /// Where the log lies.
    LogDevice(PathBuf),
    /// The partition.
    Partition(u32),
    /// Where in the image the volume begins.
    Offset(u64),
    /// Threads that serve.
    Threads(usize),
    /// Bytes of memory for contents and metadata.
    Cache(u64),
    /// What tables of mounts show.
    Source(String),
    /// Owners have other numbers here.
    Owners(Owned),
    /// Where its numbers can be asked for over HTTP.
    Metrics(SocketAddr),
    /// It concerns others, or what is so anyway.
    Nothing,
}

/// Whose numbers are others here than in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned {
    /// Of users and groups both.
    Both(Range),
    /// Of users.
    Users(Range),
    /// Of groups.
    Groups(Range),
    /// Root's are those of who mounts.
    Mine,
}

fn owned(text: &str) -> Result<Owned, String> {
    Ok(match text.split_once(':') {
        None if text == "user" => Owned::Mine,
        Some(("u", range)) => Owned::Users(range.parse()?),
        Some(("g", range)) => Owned::Groups(range.parse()?),
        _ => Owned::Both(text.parse()?),
    })
}

/// A port of this machine, for its own programs; or an address that is said.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().map(|port| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse())
        .map_err(|_| format!("\"{text}\" is neither PORT (of this machine alone) nor ADDRESS:PORT"))
}

/// Options of mount(8) that it keeps for itself, and of XFS that say what is so here, or what this machine need not
/// know.
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

/// An option, as it is written.
///
/// # Errors
/// In words, what is wrong with it.
pub fn parse(text: &str) -> Result<Wish, String> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let number = |value: &str| value.parse::<u64>().map_err(|_| format!("\"{value}\" is no number"));
    Ok(match (name, value) {
        ("ro", None) => Wish::ReadOnly(true),
        ("rw", None) => Wish::ReadOnly(false),
        ("allow_other", None) => Wish::AllowOther,
        ("suid" | "nosuid", None) => Wish::Suid(name == "suid"),
        ("dev" | "nodev", None) => Wish::Dev(name == "dev"),
        ("exec" | "noexec", None) => Wish::Exec(name == "exec"),
        ("atime" | "noatime", None) => Wish::Atime(name == "atime"),
        ("writeback_cache", None) => Wish::Writeback,
        ("logdev", Some(path)) => Wish::LogDevice(path.into()),
        ("partition", Some(value)) => {
            Wish::Partition(u32::try_from(number(value)?).map_err(|_| "there is no such partition")?)
        }
        ("offset", Some(value)) => Wish::Offset(sizes::parse(value)?),
        ("threads", Some(value)) => match number(value)? {
            threads @ 1..=1024 => Wish::Threads(threads as usize),
            _ => return Err("1 to 1024 threads can serve".into()),
        },
        ("cache", Some(value)) => Wish::Cache(sizes::parse(value)?),
        ("idmap", Some(value)) => Wish::Owners(owned(value)?),
        ("metrics", Some(value)) => Wish::Metrics(address(value)?),
        ("fsname", Some(name)) => Wish::Source(name.into()),
        (name, None) if IGNORED.contains(&name) || name.starts_with("x-") => Wish::Nothing,
        (name, Some(_)) if IGNORED_WITH_VALUE.contains(&name) || name.starts_with("x-") => Wish::Nothing,
        _ => return Err("no option of this name (xebec mount --help lists them)".into()),
    })
}

/// As it is written, so that it reads the same.
impl fmt::Display for Wish {
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
            Self::Owners(Owned::Both(range)) => write!(f, "idmap={range}"),
            Self::Owners(Owned::Users(range)) => write!(f, "idmap=u:{range}"),
            Self::Owners(Owned::Groups(range)) => write!(f, "idmap=g:{range}"),
            Self::Owners(Owned::Mine) => f.write_str("idmap=user"),
            Self::Metrics(address) => write!(f, "metrics={address}"),
            Self::Nothing => f.write_str("defaults"),
        }
    }
}

/// All of them together: of two that contradict each other, the later holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// What the mount shall be.
    pub mount: Wanted,
    /// The kernel keeps what is written for a while.
    pub writeback: bool,
    /// Where the log lies.
    pub log_device: Option<PathBuf>,
    /// The partition.
    pub partition: Option<u32>,
    /// Where in the image the volume begins.
    pub offset: Option<u64>,
    /// Threads that serve.
    pub threads: Option<usize>,
    /// Bytes of memory for contents and metadata.
    pub cache: Option<u64>,
    /// Where its numbers can be asked for over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Numbers of owners that are others here than in the volume.
    pub owners: Owners,
}

impl Wishes {
    /// Rights that programs and devices bring with them are for root alone to let in. Where owners have other numbers,
    /// a program of root's may be one that somebody else made: it gets no rights unless that is asked for.
    ///
    /// # Errors
    /// In words, where owners would have two numbers.
    pub fn new(wishes: &[Wish]) -> Result<Self, String> {
        let ordinary = !rustix::process::geteuid().is_root();
        let mount = Wanted { no_suid: ordinary, no_dev: ordinary, ..Wanted::default() };
        let mut all = Self {
            mount,
            writeback: false,
            log_device: None,
            partition: None,
            offset: None,
            threads: None,
            cache: None,
            metrics: None,
            owners: Owners::default(),
        };
        wishes.iter().try_for_each(|wish| all.add(wish))?;
        let has_chosen = wishes.iter().any(|wish| matches!(wish, Wish::Suid(_)));
        all.mount.no_suid |= !all.owners.is_empty() && !has_chosen;
        Ok(all)
    }

    fn add(&mut self, wish: &Wish) -> Result<(), String> {
        match wish {
            Wish::ReadOnly(read_only) => self.mount.read_only = *read_only,
            Wish::AllowOther => self.mount.allow_other = true,
            Wish::Suid(on) => self.mount.no_suid = !on,
            Wish::Dev(on) => self.mount.no_dev = !on,
            Wish::Exec(on) => self.mount.no_exec = !on,
            Wish::Atime(on) => self.mount.no_atime = !on,
            Wish::Writeback => self.writeback = true,
            Wish::LogDevice(path) => self.log_device = Some(path.clone()),
            Wish::Partition(number) => self.partition = Some(*number),
            Wish::Offset(offset) => self.offset = Some(*offset),
            Wish::Threads(threads) => self.threads = Some(*threads),
            Wish::Cache(bytes) => self.cache = Some(*bytes),
            Wish::Metrics(address) => self.metrics = Some(*address),
            Wish::Source(name) => self.mount.source.clone_from(name),
            Wish::Owners(owned) => {
                return self.add_owners(*owned).map_err(|error| format!("-o idmap: {error}"));
            }
            Wish::Nothing => {}
        }
        Ok(())
    }

    fn add_owners(&mut self, owned: Owned) -> Result<(), String> {
        let mine = |machine| Range { volume: 0, machine, count: 1 };
        let (user, group) = match owned {
            Owned::Both(range) => (Some(range), Some(range)),
            Owned::Users(range) => (Some(range), None),
            Owned::Groups(range) => (None, Some(range)),
            Owned::Mine => {
                let group = rustix::process::getegid().as_raw();
                (Some(mine(rustix::process::geteuid().as_raw())), Some(mine(group)))
            }
        };
        user.map_or(Ok(()), |range| self.owners.users.add(range))?;
        group.map_or(Ok(()), |range| self.owners.groups.add(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_holds() {
        let wishes: Vec<Wish> = ["ro", "nosuid", "rw", "suid", "noatime", "x-systemd.automount", "threads=3"]
            .iter()
            .map(|text| parse(text))
            .collect::<Result<_, _>>()
            .unwrap_or_default();
        let all = Wishes::new(&wishes).unwrap();
        assert!(!all.mount.read_only && !all.mount.no_suid && all.mount.no_atime);
        assert_eq!(all.threads, Some(3));
    }

    #[test]
    fn programs_get_no_rights_where_owners_have_other_numbers() {
        let all =
            |text: &str| Wishes::new(&text.split(',').map(|one| parse(one).unwrap()).collect::<Vec<_>>());
        assert!(all("idmap=0:1000").unwrap().mount.no_suid);
        assert!(!all("idmap=0:1000,suid").unwrap().mount.no_suid);
        assert!(all("idmap=0:1000,idmap=0:2000").unwrap_err().contains("0:1000:1"));
    }

    #[test]
    fn what_is_understood_is_written_as_it_reads() {
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
    fn what_is_not_known_is_refused() {
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
