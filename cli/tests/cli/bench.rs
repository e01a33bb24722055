//! `bench` that is interrupted.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

/// Names in a directory.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Processes whose command line names a directory.
fn processes(folder: &Path) -> usize {
    let name = folder.to_str().unwrap();
    let is_one = |entry: std::io::Result<std::fs::DirEntry>| {
        let words = std::fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(name)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| is_one(entry).then_some(())).count()
}

/// The second signal comes while something is mounted, of which a server in the background is a process of its own.
#[test]
fn a_second_signal_removes_mounts_directories_and_processes() {
    let ready =
        needs::mounting().and_then(|()| needs::fuse()).and_then(|()| needs::tools(&["fuse2fs", "git"]));
    let Some(()) = needs::met(ready) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut bench = needs::own(env!("CARGO_BIN_EXE_xebec"));
    bench.args(["bench", "mount", "--quick"]).env("TMPDIR", folder.path());
    let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&bench);
    // A mount point is a directory with this prefix and a number.
    let prefix = format!("xebec-bench-{}-", bench.id());
    // The first one is that of the attempt to mount.
    while !names(folder.path()).iter().any(|name| name.strip_prefix(&prefix).is_some_and(|rest| rest != "0"))
    {
        assert!(bench.try_wait().unwrap().is_none(), "the benchmark ended");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    kill_process(pid, Signal::INT).unwrap();
    let mut lines = BufReader::new(bench.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("a second signal ends it now")));
    kill_process(pid, Signal::INT).unwrap();
    let messages: Vec<String> = lines.collect();
    assert_eq!(bench.wait().unwrap().code(), Some(130), "{messages:?}");
    assert!(messages.iter().any(|line| line.contains("removing mounts and directories")), "{messages:?}");
    assert_eq!(names(folder.path()), Vec::<String>::new(), "{messages:?}");
    // A server ends when the last user of its mount has ended.
    for _ in 0..500 {
        if processes(folder.path()) == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("processes are left: {messages:?}");
}
