//! Tests on a cluster, which they share.

mod data;
mod declarations;
mod failures;
mod locks;
mod snapshots;

use needs::Ceph;

use crate::{Pool, RbdDevice, RbdError, RbdOptions, RbdUrl};

/// A connection to the cluster of the tests; `None` skips the test.
fn cluster() -> Option<(&'static Ceph, Pool)> {
    let ceph = needs::met(Ceph::shared().and_then(|ceph| installed().map(|()| ceph)))?;
    let pool = Pool::open(&url(ceph, "any"), None).unwrap();
    Some((ceph, pool))
}

/// Whether the libraries are installed.
fn installed() -> Result<(), String> {
    crate::library::Libraries::get().map(drop).map_err(|error| error.to_string())
}

fn url(ceph: &Ceph, image: &str) -> RbdUrl {
    ceph.url(image).parse().unwrap()
}

fn writable() -> RbdOptions {
    RbdOptions { writable: true, ..RbdOptions::default() }
}

/// A new image, open for changes by a client of its own.
fn new_device(ceph: &Ceph, image: &str, size: u64) -> RbdDevice {
    let url = url(ceph, image);
    Pool::open(&url, None).unwrap().create(&url, size).unwrap();
    RbdDevice::open(&url, &writable()).unwrap()
}

/// Runs a program of Ceph, which must succeed, and returns its output.
fn run(ceph: &Ceph, program: &str, arguments: &[&str]) -> String {
    let output = ceph.command(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_library_that_is_not_installed_is_named_with_the_way_to_install_it() {
    let error = crate::library::open("librbd-of-no-version.so.0").err().unwrap();
    assert!(matches!(&error, RbdError::Library { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("librbd-of-no-version.so.0: cannot open shared object file"), "{text}");
    assert!(text.contains("apt-get install librbd1"), "{text}");
    assert_eq!(error.errno(), base::errno::EOPNOTSUPP);
}
