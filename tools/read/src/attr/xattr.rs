//! Attributes as Linux shows them: with a namespace prefix, and access control lists in the Linux encoding.

use std::ops::ControlFlow;

use base::errno;
use format::Place;
use format::attr::leaf::AttrLeaf;
use format::attr::shortform::AttrShortform;
use format::attr::{Attr, Namespace, acl};
use format::dabtree::DaTree;
use format::hash;
use format::inode::Dinode;

use super::value;
use super::walk::{AttrFork, AttrWalk, attr_fork};
use crate::error::{Error, Result};
use crate::fork;
use crate::hashtree::HashTree;
use crate::volume::Volume;

/// An attribute as `getxattr` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Name with prefix; not necessarily UTF-8.
    pub name: &'a [u8],
    /// Value, at most 64 KiB.
    pub value: &'a [u8],
}

/// The names under which access control lists are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclNames {
    /// Only `system.posix_acl_*`, which other file systems accept.
    Portable,
    /// Also `trusted.SGI_ACL_*`, the on-disk form, as the kernel shows to root.
    AsRoot,
}

/// Calls `visit` for each attribute that users see: not for parent pointers and incomplete attributes. Values are
/// read one at a time. A damaged or unreadable attribute is passed as an error, and the walk continues if it can.
///
/// # Errors
/// What prevents the walk from starting or continuing; `visit` has seen all attributes before that.
pub fn for_each_xattr(
    volume: &Volume,
    inode: &Dinode<'_>,
    names: AclNames,
    mut visit: impl FnMut(Result<Xattr<'_>>) -> ControlFlow<()>,
) -> Result<()> {
    let mut walk = AttrWalk::new(volume, inode)?;
    let mut name = Vec::new();
    while let Some(batch) = walk.next_batch()? {
        for attr in batch.attrs() {
            let shown = match attr {
                Ok(attr) if attr.incomplete => ControlFlow::Continue(()),
                Ok(attr) => show(volume, inode, names, &attr, &mut name, &mut visit),
                Err(error) => visit(Err(error)),
            };
            if shown.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Names and values of all attributes that users see, with portable names of ACLs. What is damaged or unreadable is
/// passed to `complain`.
pub fn read_xattrs(
    volume: &Volume,
    inode: &Dinode<'_>,
    mut complain: impl FnMut(Error),
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let walked = for_each_xattr(volume, inode, AclNames::Portable, |xattr| {
        match xattr {
            Ok(xattr) => all.push((xattr.name.to_vec(), xattr.value.to_vec())),
            Err(error) => complain(error),
        }
        ControlFlow::Continue(())
    });
    walked.unwrap_or_else(complain);
    all
}

/// Passes one attribute to `visit` under each of its names.
fn show(
    volume: &Volume,
    inode: &Dinode<'_>,
    names: AclNames,
    attr: &Attr<'_>,
    name: &mut Vec<u8>,
    visit: &mut impl FnMut(Result<Xattr<'_>>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(prefix) = attr.namespace.prefix() else { return ControlFlow::Continue(()) };
    let bytes = match value(volume, inode, attr) {
        Ok(bytes) => bytes,
        Err(error) => return visit(Err(error)),
    };
    if let Some(linux_name) = acl::linux_name(attr.namespace, attr.name) {
        match acl::to_linux(&bytes) {
            Ok(list) => visit(Ok(Xattr { name: linux_name.as_bytes(), value: &list }))?,
            Err(damage) => visit(Err(Error::damaged(Place::ino(inode.ino()), damage)))?,
        }
        if names == AclNames::Portable {
            return ControlFlow::Continue(());
        }
    }
    name.clear();
    name.extend_from_slice(prefix.as_bytes());
    name.extend_from_slice(attr.name);
    visit(Ok(Xattr { name, value: &bytes }))
}

/// The value of the attribute with this Linux name.
///
/// # Errors
/// `ENODATA` where there is none, `EOPNOTSUPP` for a prefix that XFS does not store, damage, and what the device
/// reports.
pub fn get_xattr(volume: &Volume, inode: &Dinode<'_>, name: &[u8]) -> Result<Vec<u8>> {
    let fail = |errno, reason| {
        Error::unfit(errno, format!("inode {}: {reason} \"{}\"", inode.ino(), name.escape_ascii()))
    };
    let wanted = parse(name).ok_or_else(|| fail(errno::EOPNOTSUPP, "no attribute can be named"))?;
    let bytes = find(volume, inode, wanted)?.ok_or_else(|| fail(errno::ENODATA, "there is no attribute"))?;
    if !wanted.is_list {
        return Ok(bytes);
    }
    acl::to_linux(&bytes).map_err(|damage| Error::damaged(Place::ino(inode.ino()), damage))
}

/// The on-disk attribute of a Linux name.
#[derive(Clone, Copy)]
struct Wanted<'n> {
    namespace: Namespace,
    name: &'n [u8],
    /// The value must be converted to the Linux encoding.
    is_list: bool,
}

impl Wanted<'_> {
    fn is(&self, attr: &Attr<'_>) -> bool {
        !attr.incomplete && attr.namespace == self.namespace && attr.name == self.name
    }
}

fn parse(name: &[u8]) -> Option<Wanted<'_>> {
    let list = |name| Some(Wanted { namespace: Namespace::Trusted, name, is_list: true });
    if name == acl::LINUX_ACCESS.as_bytes() {
        return list(acl::ACCESS);
    }
    if name == acl::LINUX_DEFAULT.as_bytes() {
        return list(acl::DEFAULT);
    }
    [Namespace::User, Namespace::Trusted, Namespace::Security].into_iter().find_map(|namespace| {
        let rest = name.strip_prefix(namespace.prefix()?.as_bytes())?;
        (!rest.is_empty()).then_some(Wanted { namespace, name: rest, is_list: false })
    })
}

/// Looks up an attribute by its hash and reads its value.
fn find(volume: &Volume, inode: &Dinode<'_>, wanted: Wanted<'_>) -> Result<Option<Vec<u8>>> {
    let geometry = volume.geometry();
    match attr_fork(volume, inode)? {
        AttrFork::None => Ok(None),
        AttrFork::Inline(bytes) => {
            let damaged = |damage| Error::damaged(Place::ino(inode.ino()), damage);
            let shortform = AttrShortform::verify(bytes, geometry).map_err(damaged)?;
            for attr in shortform.entries() {
                let attr = attr.map_err(damaged)?;
                if wanted.is(&attr) {
                    return value(volume, inode, &attr).map(|bytes| Some(bytes.into_owned()));
                }
            }
            Ok(None)
        }
        AttrFork::Tree => {
            let hash = hash::name(wanted.name);
            let mut tree = HashTree::new(volume, inode, DaTree::Attr);
            let mut next = tree.descend(hash)?;
            while let Some(block) = next {
                let leaf = AttrLeaf::verify(tree.bytes(), geometry, block).map_err(fork::at(block))?;
                for attr in leaf.find(hash) {
                    let attr = attr.map_err(fork::at(block))?;
                    if wanted.is(&attr) {
                        return value(volume, inode, &attr).map(|bytes| Some(bytes.into_owned()));
                    }
                }
                next = if leaf.last_hash() == hash { tree.right(block)? } else { None };
            }
            Ok(None)
        }
    }
}
