//! Random requests: each one is answered, and the volume stays consistent.

use std::sync::Arc;

use base::errno;
use base::random::Random;
use block::MemoryDevice;
use fuse_abi::linux::{
    FUSE_WRITE_CACHE, FUSE_WRITE_KILL_SUIDGID, fuse_in_header, fuse_link_in, fuse_opcode, fuse_out_header,
    fuse_rename_in, fuse_rename2_in, fuse_write_in,
};
use xebec::{FileId, NewFile, Options, Volume};
use zerocopy::{FromBytes, IntoBytes};

use super::dispatch::{Outcome, dispatch};
use super::init::{self, MAX_TRANSFER, SessionOptions};
use super::invalidate::invalidated_nodes;
use super::reply::Reply;
use super::request::Request;
use crate::operations::{Errno, NodeId};
use crate::{VolumeOperations, volume_operations};

#[derive(Default)]
struct Findings(std::sync::Mutex<Vec<String>>);

impl check::Observer for Findings {
    fn finding(&self, finding: &check::Finding) {
        self.0.lock().unwrap().push(finding.to_string());
    }
}

/// Known opcodes and some unknown ones.
const OPCODES: u32 = 60;

fn node_of(file: FileId) -> u64 {
    volume_operations::encode_node(file).unwrap().0
}

fn below(random: &Random, end: u64) -> u64 {
    random.next_u64() % end
}

fn request(header: fuse_in_header, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<fuse_in_header>() + body.len()) as u32;
    [fuse_in_header { len, ..header }.as_bytes(), body].concat()
}

/// A body of small numbers, names and random bytes.
fn body(random: &Random) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..below(random, 9) {
        match below(random, 4) {
            0 => body.extend(random.next_u64().to_ne_bytes()),
            1 => body.extend(below(random, 6).to_ne_bytes()),
            2 => body.extend(b"name\0"),
            _ => body.extend((below(random, 1 << 20)).to_ne_bytes()),
        }
    }
    body
}

#[test]
fn random_requests_are_answered_and_do_no_damage() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let file = volume.create(volume.root(), b"name", &NewFile::regular()).unwrap();
    let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
    let operations = VolumeOperations::new(&volume, volume_operations::Options::default());
    let random = &Random::seeded(11);
    let mut reply = Reply::new(MAX_TRANSFER as usize);
    for n in 0..60_000 {
        let nodes = [1, node_of(file), node_of(dir), 0, u64::MAX, below(random, 200), random.next_u64()];
        let header = fuse_in_header {
            opcode: below(random, OPCODES.into()) as u32,
            unique: 7,
            nodeid: nodes[below(random, nodes.len() as u64) as usize],
            ..fuse_in_header::default()
        };
        let bytes = request(header, &body(random));
        let request = Request::parse(&bytes).unwrap();
        reply.clear();
        let sent = match dispatch(&operations, &request, &mut reply, &|_| n % 2 == 0) {
            Ok(Outcome::Reply | Outcome::ReplyAndInvalidate) => reply.finish(request.unique()),
            Ok(Outcome::NoReply | Outcome::Destroy) => continue,
            Ok(Outcome::ErrorAndInvalidate(error)) | Err(error) => reply.error(request.unique(), error),
        };
        let (head, _) = fuse_out_header::read_from_prefix(sent).unwrap();
        assert_eq!((head.len as usize, head.unique), (sent.len(), 7), "{header:?}");
        assert!((-511..=0).contains(&head.error), "{header:?}: {head:?}");
    }
    drop(operations);
    volume.unmount().unwrap();
    let findings = Findings::default();
    check::check(&*device, &check::Options::default(), &findings).unwrap();
    assert_eq!(findings.0.into_inner().unwrap(), Vec::<String>::new());
}

#[test]
fn random_bytes_do_not_panic() {
    let random = Random::seeded(12);
    for length in 0..80 {
        let bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        if let Some(request) = Request::parse(&bytes) {
            let mut reply = Reply::new(0);
            let _ = init::negotiate(&request, SessionOptions::default(), &mut reply);
        }
    }
}

#[test]
fn changes_invalidate_attributes() {
    let invalidated = |opcode: fuse_opcode, body: &[u8]| {
        let header = fuse_in_header { opcode: opcode as u32, nodeid: 7, ..fuse_in_header::default() };
        let bytes = request(header, body);
        let nodes = invalidated_nodes(&Request::parse(&bytes).unwrap());
        nodes.into_iter().flatten().map(|NodeId(number)| number).collect::<Vec<_>>()
    };
    assert_eq!(invalidated(fuse_opcode::FUSE_UNLINK, b"name\0"), [7], "the directory");
    let rename = |newdir| [fuse_rename_in { newdir }.as_bytes(), b"from\0to\0"].concat();
    assert_eq!(invalidated(fuse_opcode::FUSE_RENAME, &rename(9)), [7, 9], "both directories");
    assert_eq!(invalidated(fuse_opcode::FUSE_RENAME, &rename(7)), [7], "one directory");
    let rename = fuse_rename2_in { newdir: 9, ..fuse_rename2_in::default() };
    assert_eq!(invalidated(fuse_opcode::FUSE_RENAME2, rename.as_bytes()), [7, 9], "both directories");
    let link = fuse_link_in { oldnodeid: 9 };
    assert_eq!(invalidated(fuse_opcode::FUSE_LINK, link.as_bytes()), [7, 9], "the directory and the file");
    let write = |write_flags| fuse_write_in { write_flags, ..fuse_write_in::default() };
    assert_eq!(
        invalidated(fuse_opcode::FUSE_WRITE, write(FUSE_WRITE_CACHE).as_bytes()),
        [7],
        "writeback of a page"
    );
    assert!(invalidated(fuse_opcode::FUSE_WRITE, write(0).as_bytes()).is_empty(), "a write call");
    assert!(invalidated(fuse_opcode::FUSE_LOOKUP, b"name\0").is_empty(), "nothing changes");
}

/// A write by another user removed the set-user-ID bit and failed then, for example without space. The kernel was not
/// told, kept the old mode, and ran the program with the owner's privileges.
#[test]
fn a_failed_write_that_removed_privileges_invalidates_attributes() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device, Options::default()).unwrap();
    let program = NewFile { permissions: 0o6777, ..NewFile::regular() };
    let program = volume.create(volume.root(), b"program", &program).unwrap();
    let operations = VolumeOperations::new(&volume, volume_operations::Options::default());
    // No file has this handle: the write itself fails.
    let write = fuse_write_in { fh: 99, write_flags: FUSE_WRITE_KILL_SUIDGID, ..fuse_write_in::default() };
    let header = fuse_in_header {
        opcode: fuse_opcode::FUSE_WRITE as u32,
        nodeid: node_of(program),
        ..fuse_in_header::default()
    };
    let bytes = request(header, write.as_bytes());
    let write = Request::parse(&bytes).unwrap();
    let outcome = || dispatch(&operations, &write, &mut Reply::new(MAX_TRANSFER as usize), &|_| true);
    assert_eq!(outcome(), Ok(Outcome::ErrorAndInvalidate(Errno(errno::EBADF))));
    assert_eq!(volume.metadata(program).unwrap().permissions, 0o777);
    assert_eq!(outcome(), Err(Errno(errno::EBADF)), "nothing is left to remove");
}
