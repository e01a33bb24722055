//! One client at a time writes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use base::errno::{EAGAIN, EBUSY, ESHUTDOWN};
use block::{Device, Durability, Operation};
use needs::Ceph;

use super::{cluster, new_device, run, url, writable};
use crate::{RbdDevice, RbdError, RbdOptions};

/// The lock of a client that died is free after 3 s (`proof/needs/ceph`).
const PATIENT: RbdOptions =
    RbdOptions { writable: true, wait: Some(Duration::from_secs(60)), take_over: false, timeout: None };

const TAKE_OVER: RbdOptions = RbdOptions { writable: true, wait: None, take_over: true, timeout: None };

/// Tells the child process of a test which image to open.
const WRITER: &str = "XEBEC_RBD_WRITER";

/// Not a test: the other client, in a process that can be killed.
#[test]
fn writer() {
    let Ok(url) = std::env::var(WRITER) else { return };
    let device = RbdDevice::open(&url.parse().unwrap(), &writable()).unwrap();
    device.write_at(0, b"flushed", Durability::Fua).unwrap();
    println!("\nlocked");
    loop {
        device.write_at(4096, b"running", Durability::Buffered).unwrap();
    }
}

/// A process that is killed at the end of the test, also when the test fails.
struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start_writer(ceph: &Ceph, image: &str) -> Killed {
    let mut child = needs::own(std::env::current_exe().unwrap());
    child.args(["--exact", "tests::locks::writer", "--nocapture"]).env(WRITER, ceph.url(image));
    let mut child = Killed(child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let output = BufReader::new(child.0.stdout.take().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == "locked"), "{:?}", child.0.wait());
    child
}

fn address(error: RbdError) -> String {
    assert_eq!(error.errno(), EAGAIN);
    let text = error.to_string();
    assert!(text.contains("--wait 60") && text.contains("--take-over"), "{text}");
    match error {
        RbdError::Locked { owner: Some(owner), .. } => owner,
        other => panic!("{other}"),
    }
}

#[test]
fn a_second_client_is_refused_while_the_first_has_the_image_open() {
    let Some((ceph, _)) = cluster() else { return };
    let first = new_device(ceph, "one-writer", 1 << 20);
    let owner = address(RbdDevice::open(&url(ceph, "one-writer"), &writable()).err().unwrap());
    let status = run(ceph, "rbd", &["status", "rbd/one-writer"]);
    assert!(status.contains(&owner), "{owner} is not in {status}");
    let reader = RbdDevice::open(&url(ceph, "one-writer"), &RbdOptions::default()).unwrap();
    assert_eq!(reader.writer().unwrap(), Some(owner));
    // A second refusal does not disturb the first client, and the lock is free at once when it is closed.
    address(RbdDevice::open(&url(ceph, "one-writer"), &writable()).err().unwrap());
    first.write_at(0, b"mine", Durability::Fua).unwrap();
    let (waiting, started) = (url(ceph, "one-writer"), Instant::now());
    let waiting = std::thread::spawn(move || RbdDevice::open(&waiting, &PATIENT).map(|_| started.elapsed()));
    std::thread::sleep(Duration::from_secs(1));
    drop(first);
    assert!(waiting.join().unwrap().unwrap() >= Duration::from_secs(1));
    RbdDevice::open(&url(ceph, "one-writer"), &writable()).unwrap();
    assert_eq!(reader.writer().unwrap(), None);
}

/// QEMU, the kernel and `rbd` take the lock when they write, and hand it over when another client asks: their next
/// writes would fail, or take the lock back.
#[test]
fn a_client_that_would_hand_the_lock_over_is_not_asked() {
    let Some((ceph, _)) = cluster() else { return };
    drop(new_device(ceph, "benched", 64 << 20));
    let mut bench = ceph.command("rbd");
    bench.args(["bench", "--io-type", "write", "--io-total", "1T", "--io-threads", "1", "rbd/benched"]);
    let mut bench = Killed(bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let reader = RbdDevice::open(&url(ceph, "benched"), &RbdOptions::default()).unwrap();
    let started = Instant::now();
    let owner = loop {
        match reader.writer().unwrap() {
            Some(owner) => break owner,
            None if started.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(20))
            }
            None => panic!("it does not begin"),
        }
    };
    assert_eq!(address(RbdDevice::open(&url(ceph, "benched"), &writable()).err().unwrap()), owner);
    assert!(bench.0.try_wait().unwrap().is_none(), "it continues");
    bench.kill();
    RbdDevice::open(&url(ceph, "benched"), &PATIENT).unwrap();
}

#[test]
fn the_writes_of_a_client_whose_lock_was_taken_fail() {
    let Some((ceph, _)) = cluster() else { return };
    let zombie = new_device(ceph, "taken", 8 << 20);
    zombie.write_at(0, b"before", Durability::Fua).unwrap();
    let taker = RbdDevice::open(&url(ceph, "taken"), &TAKE_OVER).unwrap();
    taker.write_at(4096, b"taker", Durability::Fua).unwrap();
    let started = Instant::now();
    let failed = [
        zombie.write_at(0, b"zombie", Durability::Buffered).and_then(|()| zombie.flush()).unwrap_err(),
        zombie.write_at(4096, b"zombie", Durability::Fua).unwrap_err(),
        zombie.zero(0, 4096).and_then(|()| zombie.flush()).unwrap_err(),
        zombie.discard(0, 4 << 20).and_then(|_| zombie.flush()).unwrap_err(),
        zombie.read_at(0, &mut [0; 6]).unwrap_err(),
    ];
    assert!(started.elapsed() < Duration::from_secs(10), "at once, not after a time limit");
    for error in &failed {
        assert_eq!(error.errno(), ESHUTDOWN.get(), "{error}");
        assert!(error.to_string().contains("another client took the image over"), "{error}");
    }
    assert_eq!(failed[4].operation(), Operation::Read);
    // Closing does not take the new owner's lock away.
    drop(zombie);
    address(RbdDevice::open(&url(ceph, "taken"), &writable()).err().unwrap());
    let mut found = [0; 6];
    taker.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"before");
    taker.read_at(4096, &mut found).unwrap();
    assert_eq!(&found, b"taker\0");
}

/// Waits until the cluster has forgotten all clients that were locked out until now for its default time, which is
/// 1 s (`proof/needs/ceph`).
fn wait_for_default_expiry(ceph: &Ceph) {
    let other = "192.0.2.1:0/1";
    run(ceph, "ceph", &["osd", "blocklist", "add", other]);
    let started = Instant::now();
    while run(ceph, "ceph", &["osd", "blocklist", "ls"]).contains(other) {
        assert!(started.elapsed() < Duration::from_secs(60), "the entry does not expire");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A client that is stopped, as a virtual machine may be, and continues: by Ceph's default after an hour it would write
/// again.
#[test]
fn a_client_that_stood_still_cannot_write_after_the_takeover() {
    let Some((ceph, _)) = cluster() else { return };
    drop(new_device(ceph, "stopped", 8 << 20));
    let mut stopped = start_writer(ceph, "stopped");
    let signal = |name: &str| {
        let mut kill = needs::command("kill");
        assert!(kill.args([name, &stopped.0.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    let taker = RbdDevice::open(&url(ceph, "stopped"), &TAKE_OVER).unwrap();
    taker.write_at(4096, b"new own", Durability::Fua).unwrap();
    wait_for_default_expiry(ceph);
    signal("-CONT");
    assert!(!stopped.0.wait().unwrap().success(), "its write fails");
    let mut found = [0; 7];
    taker.read_at(4096, &mut found).unwrap();
    assert_eq!(&found, b"new own");
}

/// As above, but its lock became free: it is found dead.
#[test]
fn a_client_that_was_taken_for_dead_cannot_write() {
    let Some((ceph, _)) = cluster() else { return };
    drop(new_device(ceph, "frozen", 8 << 20));
    let mut frozen = start_writer(ceph, "frozen");
    let signal = |name: &str| {
        let mut kill = needs::command("kill");
        assert!(kill.args([name, &frozen.0.id().to_string()]).status().unwrap().success());
    };
    signal("-STOP");
    let next = RbdDevice::open(&url(ceph, "frozen"), &PATIENT).unwrap();
    next.write_at(4096, b"new own", Durability::Fua).unwrap();
    wait_for_default_expiry(ceph);
    signal("-CONT");
    assert!(!frozen.0.wait().unwrap().success(), "its write fails");
    let mut found = [0; 7];
    next.read_at(4096, &mut found).unwrap();
    assert_eq!(&found, b"new own");
}

/// It would lock itself out of the cluster.
#[test]
fn a_client_does_not_take_over_from_itself() {
    let Some((ceph, pool)) = cluster() else { return };
    let image = url(ceph, "own");
    pool.create(&image, 1 << 20).unwrap();
    let device = RbdDevice::open_in(&pool, &image, &writable()).unwrap();
    let error = RbdDevice::open_in(&pool, &image, &TAKE_OVER).err().unwrap();
    assert_eq!(error.errno(), EBUSY, "{error}");
    assert!(error.to_string().contains("this program has it open for changes already"), "{error}");
    device.write_at(0, b"still", Durability::Fua).unwrap();
}

#[test]
fn the_wait_for_a_lock_ends_in_time() {
    let Some((ceph, _)) = cluster() else { return };
    let _first = new_device(ceph, "waited", 1 << 20);
    let wait = Duration::from_millis(1500);
    let started = Instant::now();
    address(
        RbdDevice::open(&url(ceph, "waited"), &RbdOptions { wait: Some(wait), ..writable() }).err().unwrap(),
    );
    let waited = started.elapsed();
    assert!(waited >= wait && waited < wait + Duration::from_secs(5), "{waited:?}");
}

#[test]
fn the_lock_of_a_client_that_was_killed_becomes_free() {
    let Some((ceph, _)) = cluster() else { return };
    drop(new_device(ceph, "killed", 8 << 20));
    let mut killed = start_writer(ceph, "killed");
    killed.kill();
    let device = RbdDevice::open(&url(ceph, "killed"), &PATIENT).unwrap();
    let mut found = [0; 7];
    device.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"flushed");
    device.write_at(0, b"next", Durability::Fua).unwrap();
}
