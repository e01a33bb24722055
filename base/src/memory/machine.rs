//! The memory that the process may use.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The folder of the control group (version 2) of the process.
pub(super) fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(CGROUPS).join(group))
}

/// Bytes of memory of the machine, or of the control group of the process if that has a lower limit; `None` if the
/// system does not say.
pub(super) fn memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine().into_iter().chain(limits(&groups, Path::new(CGROUPS))).min()
}

fn machine() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The limits of the control group of a process and of those that it is in. `groups` is the process's list of groups,
/// of both versions.
fn limits(groups: &str, mount: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, files): (_, &[_]) = match controllers {
            // Beyond `high`, threads are slowed down until memory is free.
            "" => (mount.to_owned(), &["memory.max", "memory.high"]),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (mount.join("memory"), &["memory.limit_in_bytes"])
            }
            _ => continue,
        };
        let mut group = PathBuf::from(path.trim_start_matches('/'));
        loop {
            for file in files {
                let limit = fs::read_to_string(root.join(&group).join(file)).ok();
                limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
            }
            if !group.pop() {
                break;
            }
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_limits_of_all_groups_are_read() {
        let folder = std::env::temp_dir().join(format!("xebec-cgroups-{}", std::process::id()));
        for (group, file, text) in [
            ("", "memory.max", "max\n"),
            ("a", "memory.max", "3000000\n"),
            ("a/b", "memory.max", "max\n"),
            ("a/b", "memory.high", "2500000\n"),
            ("memory/c", "memory.limit_in_bytes", "2000000\n"),
        ] {
            let group = folder.join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(file), text).unwrap();
        }
        assert_eq!(limits("0::/a/b\n", &folder), [2_500_000, 3_000_000]);
        assert_eq!(limits("4:cpu,memory:/c\n2:cpuset:/a\n", &folder), [2_000_000]);
        assert_eq!(limits("0::/none\nnonsense\n", &folder), []);
        fs::remove_dir_all(folder).unwrap();
    }
}
