//! Preserves owner, attributes, mode and times.

use format::attr::acl;
use format::inode::FileType;

use super::{Copier, Pair, Result};
use crate::copy::ends::{Attributes, SourceEnd, TargetEnd};
use crate::copy::error::read;

impl<S: SourceEnd, T: TargetEnd> Copier<'_, S, T> {
    /// Whether attributes of sources are read: ACLs are attributes.
    pub(super) fn preserves_attributes(&self) -> bool {
        self.rules().preserve.attributes || self.rules().preserve.mode
    }

    /// Preserves metadata. The order matters: changing the owner clears set-user-ID bits and capabilities, and every
    /// change may update times.
    pub(super) fn preserve(
        &mut self,
        node: &T::Node<'_>,
        pair: &Pair<'_, S, T>,
        final_mode: Option<u16>,
    ) -> Result<()> {
        let Pair { source, stat, follow, .. } = *pair;
        let (preserve, to) = (self.rules().preserve, self.to);
        let mut mode = stat.permissions;
        if preserve.ownership && !to.set_owner(node, stat.uid, stat.gid)? {
            // Set-ID bits for another owner would grant unintended privileges.
            mode &= 0o777;
        }
        let attributes = match self.preserves_attributes() {
            true => read(self.from.attributes(source, follow, &mut *self.events))?,
            false => Vec::new(),
        };
        let (acls, attributes): (Attributes, Attributes) =
            attributes.into_iter().partition(|(name, _)| is_acl(name));
        for (name, value) in attributes.iter().filter(|_| preserve.attributes) {
            match to.set_attribute(node, name, value) {
                Err(error) if preserve.require_attributes => return Err(error.into()),
                set => self.report.not_preserved += u64::from(set.is_err()),
            }
        }
        if stat.kind != FileType::Symlink {
            if preserve.mode {
                self.preserve_acls(node, stat.kind, &acls)?;
                to.set_mode(node, mode)?;
            } else if let Some(final_mode) = final_mode {
                to.set_mode(node, final_mode)?;
            }
        }
        if preserve.timestamps {
            to.set_times(node, stat.accessed, stat.modified)?;
        }
        Ok(())
    }

    /// ACLs are part of the mode: those of the source, or none.
    fn preserve_acls(
        &mut self,
        node: &T::Node<'_>,
        kind: FileType,
        acls: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<()> {
        let names = match kind {
            FileType::Directory => &[acl::LINUX_ACCESS, acl::LINUX_DEFAULT][..],
            _ => &[acl::LINUX_ACCESS],
        };
        for name in names {
            match acls.iter().find(|(acl, _)| acl == name.as_bytes()) {
                Some((_, value)) => {
                    let set = self.to.set_attribute(node, name.as_bytes(), value);
                    self.report.not_preserved += u64::from(set.is_err());
                }
                None => self.to.remove_attribute(node, name.as_bytes())?,
            }
        }
        Ok(())
    }
}

/// Whether an attribute is an ACL. XFS also shows them to root under other names.
fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_") || name.starts_with(b"trusted.SGI_ACL_")
}
