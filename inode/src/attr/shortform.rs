//! Attributes in shortform, in the inode; the conversion to a leaf.

use format::attr::edit::shortform;
use format::attr::{Attr, AttrValue};
use format::inode::ForkKind;
use format::log::inode::fields;

use super::forkoff::forkoff_for;
use super::read::AttrReader;
use super::{AttrKey, AttrStorage, Attributes, NewAttrValue, Result};

impl Attributes<'_> {
    /// The contents of the fork with one attribute removed and another one added.
    fn shortform_replaced(&self, key: &AttrKey<'_>, new: Option<Attr<'_>>) -> Result<Option<Vec<u8>>> {
        shortform::exchange(self.shortform_bytes(), self.geometry(), |attr| key.is(attr), new)
            .map_err(|damage| self.damaged(damage))
    }

    pub(super) fn shortform_set(&mut self, key: &AttrKey<'_>, value: &NewAttrValue<'_>) -> Result<()> {
        if let NewAttrValue::Inline(value) = value {
            let value = AttrValue::Inline(value);
            let new = Attr { namespace: key.namespace, incomplete: false, name: key.name, value };
            if self.set_in_place(key, &new)? {
                return Ok(());
            }
            if let Some(contents) = self.shortform_replaced(key, Some(new))?
                && self.put_shortform(&contents)
            {
                return Ok(());
            }
        }
        let bytes = self.shortform_bytes().to_vec();
        let mut stay =
            shortform::attributes(&bytes, self.geometry()).map_err(|damage| self.damaged(damage))?;
        stay.retain(|attr| !key.is(attr));
        self.leave_inode(&stay, key, value)
    }

    /// Sets an attribute without moving others. The start of the fork moves only for the first attribute. Returns
    /// `false` if others have to move.
    fn set_in_place(&mut self, key: &AttrKey<'_>, new: &Attr<'_>) -> Result<bool> {
        if self.storage() == AttrStorage::None {
            let size = shortform::size([(new.name.len(), new.value.length())]);
            let offset = size.and_then(|size| forkoff_for(self.fork.state, size));
            let Some(offset) = offset else { return Ok(false) };
            self.begin_shortform(offset);
        }
        let geometry = self.geometry();
        let area = self.fork.state.fork_bytes_mut(ForkKind::Attr);
        let set = shortform::set(area, geometry, |attr| key.is(attr), new);
        let set = set.map_err(|damage| self.damaged(damage))?;
        if set {
            self.fork.state.mark(fields::ATTR_LOCAL);
        }
        Ok(set)
    }

    /// Converts to a leaf, or to several where blocks are small.
    fn leave_inode(
        &mut self,
        attributes: &[Attr<'_>],
        key: &AttrKey<'_>,
        value: &NewAttrValue<'_>,
    ) -> Result<()> {
        // Moving the start of the fork may force a shortform directory into its first block.
        let data = 1 << self.fork.shared.geometry.dir_block_log;
        self.ensure_blocks(super::max_new_blocks(self.geometry()) + data)?;
        self.fork.state.check_extent_count(ForkKind::Attr, super::max_new_extents(self.geometry(), value))?;
        self.take_value(value)?;
        // Allocate the leaf's block before the attributes leave the inode: this may fail.
        let run = self.take_first_block()?;
        self.begin_extents()?;
        self.init_first_leaf(run)?;
        for attr in attributes {
            self.node_insert(attr)?;
        }
        self.node_set(key, value)
    }

    pub(super) fn shortform_remove(&mut self, key: &AttrKey<'_>) -> Result<bool> {
        if self.shortform_find(key)?.is_none() {
            return Ok(false);
        }
        match self.shortform_replaced(key, None)? {
            Some(contents) if contents == shortform::EMPTY => self.end_fork()?,
            // Fits, because it is smaller than before.
            Some(contents) => {
                let _ = self.fork.state.set_attr_local(&contents);
            }
            None => {}
        }
        Ok(true)
    }
}
