//! Interrupting `bench`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

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

/// Starts `bench mount` with a directory for temporary files, in a process group of its own, as at a terminal. Returns
/// when its first file system is mounted, whose server runs in the background.
fn mounted(folder: &Path, sizes: &[&str]) -> Child {
    let mut bench = needs::own(env!("CARGO_BIN_EXE_xebec"));
    bench.args(["bench", "mount"]).args(sizes).env("TMPDIR", folder).process_group(0);
    let mut bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mounts = format!("/proc/{}/mounts", bench.id());
    let is_one = |line: &str| line.contains(folder.to_str().unwrap()) && line.contains(" fuse");
    while !std::fs::read_to_string(&mounts).is_ok_and(|text| text.lines().any(is_one)) {
        assert!(bench.try_wait().unwrap().is_none(), "the benchmark ended");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    bench
}

/// Ctrl-C signals the whole process group of a terminal. It killed the children of the measurement, so that the run
/// failed at once.
#[test]
fn the_first_signal_lets_the_measurement_end() {
    let Some(()) = needs::met(needs::mounting().and_then(|()| needs::fuse())) else { return };
    let folder = tempfile::tempdir().unwrap();
    let bench = mounted(folder.path(), &["--smoke", "--rounds", "3"]);
    kill_process_group(Pid::from_child(&bench), Signal::INT).unwrap();
    let output = bench.wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{messages}");
    assert!(messages.contains("interrupted"), "{messages}");
    assert_eq!(names(folder.path()), Vec::<String>::new(), "{messages}");
}

/// The second signal comes while something is mounted.
#[test]
fn a_second_signal_removes_mounts_directories_and_processes() {
    let ready =
        needs::mounting().and_then(|()| needs::fuse()).and_then(|()| needs::tools(&["fuse2fs", "git"]));
    let Some(()) = needs::met(ready) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut bench = mounted(folder.path(), &["--quick"]);
    let pid = Pid::from_child(&bench);
    kill_process_group(pid, Signal::INT).unwrap();
    let mut lines = BufReader::new(bench.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("a second signal ends it now")));
    // Not SIGHUP, which has no effect if the tests run under nohup.
    kill_process_group(pid, Signal::QUIT).unwrap();
    let messages: Vec<String> = lines.collect();
    assert_eq!(bench.wait().unwrap().code(), Some(131), "{messages:?}");
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
