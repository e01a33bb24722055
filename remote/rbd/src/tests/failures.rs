//! What cannot be opened, and a cluster that does not answer.

use std::time::{Duration, Instant};

use base::errno::{EINVAL, ENOENT, ETIMEDOUT, Errno};
use block::{Device, Durability};
use needs::Ceph;

use super::{cluster, installed, new_device, url, writable};
use crate::{Pool, RbdDevice, RbdError, RbdOptions, RbdUrl};

fn error(url: &str, options: &RbdOptions) -> RbdError {
    RbdDevice::open(&url.parse().unwrap(), options).err().unwrap_or_else(|| panic!("{url} was opened"))
}

#[test]
fn errors_say_what_is_missing_and_what_to_do() {
    let Some((ceph, _)) = cluster() else { return };
    drop(new_device(ceph, "present", 1 << 20));
    let conf = format!("conf={}", ceph.configuration().display());
    let read = RbdOptions::default();
    let cases: [(String, RbdOptions, Option<Errno>, &str); 9] = [
        (
            format!("rbd://no-pool/image?{conf}"),
            read,
            Some(ENOENT),
            "no pool \"no-pool\" (list pools: ceph osd pool ls)",
        ),
        (
            format!("rbd://rbd/absent?{conf}"),
            read,
            Some(ENOENT),
            "rbd://rbd/absent: cannot open the image: not found",
        ),
        (format!("rbd://rbd/present@no?{conf}"), read, Some(ENOENT), "snapshots: rbd snap ls"),
        (
            format!("rbd://rbd/present?{conf}&no_option=1"),
            read,
            Some(ENOENT),
            "no_option=1: Ceph has no option of this name",
        ),
        (
            format!("rbd://rbd/present?{conf}&rbd_op_threads=what"),
            read,
            Some(EINVAL),
            "rbd_op_threads=what: Ceph does not accept",
        ),
        (format!("rbd://rbd/present?{conf}&key=secret"), read, None, ""),
        (
            "rbd://rbd/present?conf=/no/file".to_owned(),
            read,
            Some(ENOENT),
            "configuration of Ceph in /no/file: not found",
        ),
        (
            format!("rbd://rbd/present?{conf}&id=nobody"),
            read,
            None,
            "cannot connect to the Ceph cluster as client.nobody",
        ),
        (format!("rbd://rbd/present?{conf}&id=reader"), writable(), None, "permission denied"),
    ];
    for (url, options, errno, text) in cases {
        let error = error(&url, &options);
        assert!(error.to_string().contains(text), "{url}: {error}");
        assert!(!error.to_string().contains("secret"), "{url}: {error}");
        assert!(errno.is_none_or(|errno| error.errno() == errno), "{url}: {:?}", error.errno());
    }
    // Permission to read is enough for a reader.
    let reader: RbdUrl = format!("rbd://rbd/present?{conf}&id=reader").parse().unwrap();
    RbdDevice::open(&reader, &read).unwrap().read_at(0, &mut [0; 512]).unwrap();
}

#[test]
fn monitors_that_do_not_answer_are_an_error_after_the_limit() {
    let Some((ceph, _)) = cluster() else { return };
    // A port at which nobody listens, in the middle of a network of documentation.
    let url = format!("{}&mon_host=[v2:127.0.0.1:1]", ceph.url("image"));
    let started = Instant::now();
    let options = RbdOptions { timeout: Some(Duration::from_secs(2)), ..RbdOptions::default() };
    let error = error(&url, &options);
    assert_eq!(error.errno(), ETIMEDOUT, "{error}");
    assert!(error.to_string().contains("the monitors do not answer"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

fn signal(ceph: &Ceph, name: &str) {
    let mut kill = needs::command("kill");
    assert!(kill.args([name, &ceph.osd().to_string()]).status().unwrap().success());
}

/// A write that was given up may still be carried out: so nothing is written after it, and the lock is not released,
/// which makes the next client lock this one out before it reads anything.
#[test]
fn a_write_without_an_answer_ends_all_writing() {
    let Some(()) = needs::met(Ceph::installed().and_then(|()| installed())) else { return };
    let ceph = Ceph::start();
    let image = url(&ceph, "unanswered");
    Pool::open(&image, None).unwrap().create(&image, 1 << 20).unwrap();
    const TIMEOUT: Duration = Duration::from_secs(2);
    let limited = RbdOptions { timeout: Some(TIMEOUT), ..writable() };
    let device = RbdDevice::open(&image, &limited).unwrap();
    device.write_at(0, b"early", Durability::Fua).unwrap();
    signal(&ceph, "-STOP");
    // It may answer until all of its threads stand still.
    let status = format!("/proc/{}/status", ceph.osd());
    while !std::fs::read_to_string(&status).unwrap().contains("State:\tT") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = device.write_at(0, b"late ", Durability::Fua).unwrap_err();
    assert_eq!(error.errno(), ETIMEDOUT.get(), "{error}");
    assert!(error.to_string().contains("ceph health detail"), "{error}");
    // With its cache, librbd forgets such an error, and the flush succeeds.
    let started = Instant::now();
    assert_eq!(device.write_at(4096, b"more", Durability::Buffered).unwrap_err().errno(), ETIMEDOUT.get());
    assert_eq!(device.flush().unwrap_err().errno(), ETIMEDOUT.get());
    assert!(started.elapsed() < 2 * TIMEOUT, "both at once, not after a time limit each");
    signal(&ceph, "-CONT");
    assert_eq!(device.write_at(4096, b"more", Durability::Buffered).unwrap_err().errno(), ETIMEDOUT.get());
    drop(device);
    let taker = RbdOptions { take_over: true, ..writable() };
    let next = RbdDevice::open(&image, &taker).unwrap();
    let mut found = [1; 4];
    next.read_at(4096, &mut found).unwrap();
    assert_eq!(found, [0; 4]);
}
