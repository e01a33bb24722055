//! What a copy follows, preserves and overwrites.

/// Symlinks to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None: links are copied.
    #[default]
    Never,
    /// Those that are named as sources.
    Sources,
    /// All links.
    Always,
}

impl Follow {
    /// Whether to follow a link.
    pub(super) fn applies(self, is_source: bool) -> bool {
        self == Self::Always || self == Self::Sources && is_source
    }
}

/// Metadata to preserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permissions and ACLs.
    pub mode: bool,
    /// Owner and group.
    pub ownership: bool,
    /// Access and modification times.
    pub timestamps: bool,
    /// Hard links.
    pub links: bool,
    /// Extended attributes.
    pub attributes: bool,
    /// Fail if an extended attribute cannot be preserved. Otherwise it is counted.
    pub require_attributes: bool,
}

impl Preserve {
    /// Everything; extended attributes where possible.
    pub fn all() -> Self {
        Self {
            mode: true,
            ownership: true,
            timestamps: true,
            links: true,
            attributes: true,
            require_attributes: false,
        }
    }
}

/// What a copy does with directories, links, metadata and existing files. By default, single files are copied, links
/// are copied as links, nothing is preserved, and existing files are overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyRules {
    /// Copy directories with everything below them, and pipes and devices as such. Otherwise, directories are refused,
    /// and devices of the host are read.
    pub recursive: bool,
    /// Symlinks to follow.
    pub follow: Follow,
    /// Metadata to preserve.
    pub preserve: Preserve,
    /// Create files with the default mode instead of that of the source.
    pub default_mode: bool,
    /// Keep existing files.
    pub no_clobber: bool,
    /// Overwrite existing files only if the source is newer.
    pub update: bool,
    /// Skip unreadable files. No partial copy of such a file remains, and an existing target is neither overwritten nor
    /// removed: the source is read once before.
    pub ignore_unreadable: bool,
    /// Remove existing files that cannot be opened.
    pub force: bool,
    /// Remove each existing file before it is created again.
    pub remove_destination: bool,
}

impl CopyRules {
    /// Copies whole trees and preserves everything.
    pub fn archive() -> Self {
        Self { recursive: true, preserve: Preserve::all(), ..Self::default() }
    }
}
