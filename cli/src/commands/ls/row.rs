//! The facts of one file in a listing.

use format::attr::Namespace;
use format::inode::{Dinode, FileType, Fork, ForkKind};
use read::{AttrWalk, Error, Metadata, Volume, get_xattr, read_link};

use super::{Form, Options};

/// What is known of one file.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// What its inode says; `None` where it cannot be read, or is not asked for.
    pub metadata: Option<Metadata>,
    /// What stands behind the mode.
    pub mark: Mark,
    /// Where a symlink points.
    pub target: Option<Box<[u8]>>,
}

/// What stands behind the mode in a long line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    #[default]
    None,
    /// `.`: a security label and no access control list.
    Label,
    /// `+`: an access control list.
    List,
}

impl Row {
    /// Gathers what the options ask for.
    pub fn of(volume: &Volume, inode: &Dinode<'_>, options: &Options) -> Result<Self, Error> {
        let metadata = Metadata::of(inode, volume.geometry())?;
        let mut row = Self { metadata: Some(metadata), ..Self::default() };
        if matches!(options.form, Form::Long | Form::Json) {
            if metadata.file_type == FileType::Symlink {
                row.target = Some(read_link(volume, inode)?.into());
            }
            row.mark = mark(volume, inode);
        }
        Ok(row)
    }

    /// The file type as far as it is known.
    pub fn file_type(&self) -> Option<FileType> {
        self.metadata.map(|metadata| metadata.file_type)
    }
}

/// Damaged attributes are no reason not to list a file: then it has no mark.
fn mark(volume: &Volume, inode: &Dinode<'_>) -> Mark {
    match inode.fork(ForkKind::Attr, volume.geometry()) {
        // The kernel gives new files an empty attribute fork where it expects attributes to come.
        Ok(None | Some(Fork::Extents([]))) | Err(_) => Mark::None,
        Ok(Some(Fork::Local(_))) => inline_mark(volume, inode).unwrap_or_default(),
        Ok(Some(_)) => {
            let has = |name: &str| get_xattr(volume, inode, name.as_bytes()).is_ok();
            if has("system.posix_acl_access") || has("system.posix_acl_default") {
                Mark::List
            } else if has("security.selinux") {
                Mark::Label
            } else {
                Mark::None
            }
        }
    }
}

fn inline_mark(volume: &Volume, inode: &Dinode<'_>) -> Result<Mark, Error> {
    let mut mark = Mark::None;
    let mut walk = AttrWalk::new(volume, inode)?;
    while let Some(batch) = walk.next_batch()? {
        for attr in batch.attrs() {
            let attr = attr?;
            match (attr.namespace, attr.name) {
                (Namespace::Trusted, b"SGI_ACL_FILE" | b"SGI_ACL_DEFAULT") => return Ok(Mark::List),
                (Namespace::Security, b"selinux") => mark = Mark::Label,
                _ => {}
            }
        }
    }
    Ok(mark)
}
