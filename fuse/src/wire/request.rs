//! Parses requests. Incomplete ones give `EINVAL`.

use base::errno::EINVAL;
use fuse_abi::linux::{fuse_in_header, fuse_opcode};
use zerocopy::FromBytes;

use crate::operations::{Caller, Errno, NodeId, Result};

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'b> {
    header: fuse_in_header,
    /// `None` if it is shorter than the header says.
    body: Option<&'b [u8]>,
}

impl<'b> Request<'b> {
    /// Parses the bytes that were read from the device; `None` if they do not contain a header.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (header, rest) = fuse_in_header::read_from_prefix(bytes).ok()?;
        let length = (header.len as usize).checked_sub(size_of::<fuse_in_header>());
        Some(Self { header, body: length.and_then(|length| rest.get(..length)) })
    }

    /// The id of the request, for its reply.
    pub fn unique(&self) -> u64 {
        self.header.unique
    }

    /// Whether the body is as long as the header says.
    pub fn is_complete(&self) -> bool {
        self.body.is_some()
    }

    /// Opcode; `None` if unknown.
    pub fn opcode(&self) -> Option<fuse_opcode> {
        fuse_opcode::try_from(self.header.opcode).ok()
    }

    /// Opcode as a number.
    pub fn opcode_number(&self) -> u32 {
        self.header.opcode
    }

    /// Nodeid.
    pub fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// The calling process.
    pub fn caller(&self) -> Caller {
        Caller { uid: self.header.uid, gid: self.header.gid }
    }

    /// The arguments.
    pub fn body(&self) -> Body<'b> {
        Body(self.body.unwrap_or_default())
    }
}

/// The rest of a request's body.
#[derive(Clone, Copy, Debug)]
pub struct Body<'b>(&'b [u8]);

impl<'b> Body<'b> {
    /// Takes a structure.
    pub fn take<T: FromBytes>(&mut self) -> Result<T> {
        let (taken, rest) = T::read_from_prefix(self.0).map_err(|_| Errno(EINVAL))?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes a name and its NUL.
    pub fn name(&mut self) -> Result<&'b [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno(EINVAL))?;
        let (name, rest) = self.0.split_at(end);
        self.0 = rest.get(1..).unwrap_or_default();
        Ok(name)
    }

    /// Takes `count` bytes.
    pub fn bytes(&mut self, count: u32) -> Result<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count as usize).ok_or(Errno(EINVAL))?;
        self.0 = rest;
        Ok(taken)
    }
}
