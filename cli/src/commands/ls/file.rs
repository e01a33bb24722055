//! Metadata of a file in a listing.

use format::attr::Namespace;
use format::inode::{Dinode, FileType, Fork, ForkKind};
use read::{AttrWalk, Error, Metadata, Volume, get_xattr, read_link};

use super::{Options, OutputFormat};

/// Metadata of a file.
#[derive(Clone, Debug, Default)]
pub struct FileInfo {
    /// Data of the inode; `None` if it is unreadable or not needed.
    pub metadata: Option<Metadata>,
    /// Mark after the mode.
    pub mark: Mark,
    /// Target of a symbolic link.
    pub target: Option<Box<[u8]>>,
}

/// Mark after the mode in a long listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// No mark.
    #[default]
    None,
    /// `.`: a security label without an ACL.
    Label,
    /// `+`: an ACL.
    Acl,
}

impl FileInfo {
    /// Reads what the options need.
    pub fn of(volume: &Volume, inode: &Dinode<'_>, options: &Options) -> Result<Self, Error> {
        let metadata = Metadata::of(inode, volume.geometry())?;
        let mut file = Self { metadata: Some(metadata), ..Self::default() };
        if matches!(options.format, OutputFormat::Long | OutputFormat::Json) {
            if metadata.file_type == FileType::Symlink {
                file.target = Some(read_link(volume, inode)?.into());
            }
            file.mark = mark(volume, inode);
        }
        Ok(file)
    }

    /// File type, if known.
    pub fn file_type(&self) -> Option<FileType> {
        self.metadata.map(|metadata| metadata.file_type)
    }
}

/// The mark; none if the attributes are damaged.
fn mark(volume: &Volume, inode: &Dinode<'_>) -> Mark {
    match inode.fork(ForkKind::Attr, volume.geometry()) {
        // The kernel may create an empty attribute fork in new files.
        Ok(None | Some(Fork::Extents([]))) | Err(_) => Mark::None,
        Ok(Some(Fork::Local(_))) => inline_mark(volume, inode).unwrap_or_default(),
        Ok(Some(_)) => {
            let has = |name: &str| get_xattr(volume, inode, name.as_bytes()).is_ok();
            if has("system.posix_acl_access") || has("system.posix_acl_default") {
                Mark::Acl
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
                (Namespace::Trusted, b"SGI_ACL_FILE" | b"SGI_ACL_DEFAULT") => return Ok(Mark::Acl),
                (Namespace::Security, b"selinux") => mark = Mark::Label,
                _ => {}
            }
        }
    }
    Ok(mark)
}
