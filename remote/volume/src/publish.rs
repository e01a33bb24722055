//! Replacing the head.
//!
//! # Invariants
//! - A head is replaced only by comparing its version, and only by the writer of its epoch, or by a change that leaves
//!   the writer's part alone (snapshots, pins).

use store::{Bytes, ErrorKind};

use crate::client::Client;
use crate::error::{ObjectError, Result};
use crate::head::{HEAD_BYTES, Head};
use crate::names::HEAD;
#[cfg(test)]
use crate::options::Defect;
use crate::options::ObjectOptions;
use crate::state::{Core, Failure, Publisher};
use store::Version;

/// A head as it is in the store.
#[derive(Clone, Debug)]
pub struct Published {
    pub head: Head,
    pub version: Version,
    /// When it was written, in seconds by the store's clock.
    pub modified: u64,
}

/// Reads the head; `None` if there is no volume.
pub fn read_head(client: &Client) -> Result<Option<Published>> {
    let mut attempts = 0;
    loop {
        let object = match client.get(HEAD, HEAD_BYTES) {
            Err(error) if error.kind == ErrorKind::Absent => return Ok(None),
            object => object?,
        };
        match Head::decode(&object.bytes) {
            Ok(head) => {
                let modified = object.modified.as_secs();
                return Ok(Some(Published { head, version: object.version, modified }));
            }
            // The reply may be damaged, not the object.
            Err(_) if attempts < 3 => attempts += 1,
            Err(damage) => {
                return Err(ObjectError::Damaged { volume: client.name(), key: HEAD.into(), damage });
            }
        }
    }
}

/// Result of an attempt to replace a head.
#[derive(Debug)]
pub enum Swap {
    /// It is in the store.
    Done(Version),
    /// Another change was faster: the head that is there now, `None` if there is none.
    Other(Option<Box<Published>>),
}

/// Replaces the head of this version, or creates it. The result is clear also where a reply was not.
pub fn swap(client: &Client, new: &Head, version: Option<&Version>, options: &ObjectOptions) -> Result<Swap> {
    let bytes = Bytes::from(new.encode());
    if bytes.len() as u64 > HEAD_BYTES {
        let reason = "its head would be too large: remove snapshots, or pins of clones";
        return Err(ObjectError::Refused { volume: client.name(), reason: reason.into() });
    }
    let mut attempts = client.attempts(options.timeout);
    loop {
        let put = match version {
            #[cfg(test)]
            Some(_) if options.has(Defect::UnconditionalHead) => unconditional(client, &bytes),
            Some(version) => client.put_if_match(HEAD, bytes.clone(), version),
            None => client.put_if_absent(HEAD, bytes.clone()),
        };
        match put {
            Ok(version) => return Ok(Swap::Done(version)),
            Err(error) if error.kind == ErrorKind::Precondition => {
                return Ok(match read_head(client)? {
                    Some(found) if found.head.change == new.change => Swap::Done(found.version),
                    found => Swap::Other(found.map(Box::new)),
                });
            }
            Err(error) if error.kind == ErrorKind::Unclear && attempts.wait() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
fn unconditional(client: &Client, bytes: &Bytes) -> std::result::Result<Version, store::StoreError> {
    let version = client.get(HEAD, HEAD_BYTES)?.version;
    client.put_if_match(HEAD, bytes.clone(), &version)
}

impl Core {
    /// Changes the head of the volume that this writer has open. `change` is applied again if another program has
    /// changed snapshots or pins meanwhile. The head of a volume that does not exist yet is changed in memory, unless
    /// `creates`.
    pub fn publish(
        &self,
        publisher: &mut Publisher,
        creates: bool,
        mut change: impl FnMut(&Self, &mut Publisher, &mut Head) -> Result<()>,
    ) -> Result<()> {
        let client = self.client()?;
        loop {
            let mut new = publisher.head.clone();
            change(self, publisher, &mut new)?;
            if publisher.version.is_none() && !creates {
                publisher.head = new;
                return Ok(());
            }
            new.change = self.options.nonce();
            match swap(client, &new, publisher.version.as_ref(), &self.options)? {
                Swap::Done(version) => {
                    publisher.head = new;
                    publisher.version = Some(version);
                    return Ok(());
                }
                Swap::Other(Some(found))
                    if (found.head.epoch, found.head.nonce) == (self.epoch, self.nonce) =>
                {
                    publisher.head = found.head;
                    publisher.version = Some(found.version);
                }
                Swap::Other(_) => {
                    self.fail(Failure::Fenced);
                    return Err(ObjectError::Fenced { volume: self.name.clone() });
                }
            }
        }
    }
}
