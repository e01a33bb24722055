//! Requests that no kernel sends: whatever the bytes are, there is an answer, and the volume stays whole.

use std::sync::Arc;

use base::random::Random;
use block::MemoryDevice;
use fuse_abi::linux::{
    FUSE_WRITE_CACHE, fuse_in_header, fuse_link_in, fuse_opcode, fuse_out_header, fuse_rename_in,
    fuse_rename2_in, fuse_write_in,
};
use xebec::{NewFile, Options, Volume};
use zerocopy::{FromBytes, IntoBytes};

use super::dispatch::{Answer, answer};
use super::init::{self, MOST};
use super::reply::Reply;
use super::request::Request;
use super::stale::stale;
use crate::operations::Node;
use crate::{Served, served};

#[derive(Default)]
struct Findings(std::sync::Mutex<Vec<String>>);

impl check::Observer for Findings {
    fn finding(&self, finding: &check::Finding) {
        self.0.lock().unwrap().push(finding.to_string());
    }
}

/// Opcodes that there are, and some beyond.
const OPCODES: u32 = 60;

fn below(random: &Random, end: u64) -> u64 {
    random.next_u64() % end
}

fn request(header: fuse_in_header, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<fuse_in_header>() + body.len()) as u32;
    [fuse_in_header { len, ..header }.as_bytes(), body].concat()
}

/// A body of small numbers, names and noise, as often as not of the length that a request has.
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
fn nonsense_is_answered_and_changes_nothing_for_the_worse() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs::format(&*device, &mkfs::Options::default()).unwrap();
    let volume = Volume::open(device.clone(), Options::default()).unwrap();
    let file = volume.create(volume.root(), b"name", &NewFile::regular()).unwrap();
    let dir = volume.create(volume.root(), b"dir", &NewFile::directory()).unwrap();
    let served = Served::new(&volume, served::Options::default());
    let random = &Random::seeded(11);
    let mut reply = Reply::new(MOST as usize);
    for _ in 0..60_000 {
        let nodes = [1, file.0, dir.0, 0, u64::MAX, below(random, 200)];
        let header = fuse_in_header {
            opcode: below(random, OPCODES.into()) as u32,
            unique: 7,
            nodeid: nodes[below(random, nodes.len() as u64) as usize],
            ..fuse_in_header::default()
        };
        let bytes = request(header, &body(random));
        let request = Request::parse(&bytes).unwrap();
        reply.clear();
        let sent = match answer(&served, &request, &mut reply) {
            Ok(Answer::Reply | Answer::Outdating) => reply.done(request.unique()),
            Ok(Answer::None | Answer::End) => continue,
            Err(error) => reply.error(request.unique(), error),
        };
        let (head, _) = fuse_out_header::read_from_prefix(sent).unwrap();
        assert_eq!((head.len as usize, head.unique), (sent.len(), 7), "{header:?}");
        assert!((-511..=0).contains(&head.error), "{header:?}: {head:?}");
    }
    drop(served);
    volume.unmount().unwrap();
    let findings = Findings::default();
    check::check(&*device, &check::Options::default(), &findings).unwrap();
    assert_eq!(findings.0.into_inner().unwrap(), Vec::<String>::new());
}

#[test]
fn what_is_no_request_is_none() {
    let random = Random::seeded(12);
    for length in 0..80 {
        let bytes: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        if let Some(request) = Request::parse(&bytes) {
            let mut reply = Reply::new(0);
            let _ = init::agree(&request, false, &mut reply);
        }
    }
}

#[test]
fn what_a_change_makes_old_is_told() {
    let told = |opcode: fuse_opcode, body: &[u8]| {
        let header = fuse_in_header { opcode: opcode as u32, nodeid: 7, ..fuse_in_header::default() };
        let bytes = request(header, body);
        let nodes = stale(&Request::parse(&bytes).unwrap());
        nodes.into_iter().flatten().map(|Node(number)| number).collect::<Vec<_>>()
    };
    assert_eq!(told(fuse_opcode::FUSE_UNLINK, b"name\0"), [7], "the directory");
    let rename = |newdir| [fuse_rename_in { newdir }.as_bytes(), b"from\0to\0"].concat();
    assert_eq!(told(fuse_opcode::FUSE_RENAME, &rename(9)), [7, 9], "both directories");
    assert_eq!(told(fuse_opcode::FUSE_RENAME, &rename(7)), [7], "one directory");
    let rename = fuse_rename2_in { newdir: 9, ..fuse_rename2_in::default() };
    assert_eq!(told(fuse_opcode::FUSE_RENAME2, rename.as_bytes()), [7, 9], "both directories");
    let link = fuse_link_in { oldnodeid: 9 };
    assert_eq!(told(fuse_opcode::FUSE_LINK, link.as_bytes()), [7, 9], "the directory and the file");
    let write = |write_flags| fuse_write_in { write_flags, ..fuse_write_in::default() };
    assert_eq!(told(fuse_opcode::FUSE_WRITE, write(FUSE_WRITE_CACHE).as_bytes()), [7], "of a page");
    assert_eq!(told(fuse_opcode::FUSE_WRITE, write(0).as_bytes()), [], "of a call");
    assert_eq!(told(fuse_opcode::FUSE_LOOKUP, b"name\0"), [], "nothing changes");
}
