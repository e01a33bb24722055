//! Attributes within the inode.

use format::attr::edit::shortform;
use format::attr::{Attr, AttrValue};
use format::inode::ForkKind;
use format::log::inode::fields;

use super::place::offset_for;
use super::{Attributes, Key, Listed, NewValue, Result, Stored};

impl Attributes<'_> {
    /// The bytes of the attributes in the inode; none where there are none.
    fn inside(&self) -> &[u8] {
        match (self.stored(), self.state.attr_local()) {
            (Stored::Inside, Some(bytes)) => bytes,
            _ => &shortform::EMPTY,
        }
    }

    fn taken_apart(&self) -> Result<Vec<Attr<'_>>> {
        shortform::attributes(self.inside(), self.geometry()).map_err(|damage| self.damaged(damage))
    }

    fn inside_find(&self, key: &Key<'_>) -> Result<Option<Attr<'_>>> {
        shortform::find(self.inside(), self.geometry(), |attr| key.is(attr))
            .map_err(|damage| self.damaged(damage))
    }

    pub(super) fn inside_has(&self, key: &Key<'_>) -> Result<bool> {
        Ok(self.inside_find(key)?.is_some())
    }

    pub(super) fn inside_get(&self, key: &Key<'_>) -> Result<Option<Vec<u8>>> {
        Ok(self.inside_find(key)?.and_then(|attr| match attr.value {
            AttrValue::Inline(value) => Some(value.to_vec()),
            AttrValue::Remote { .. } => None,
        }))
    }

    pub(super) fn inside_list(&self) -> Result<Vec<Listed>> {
        Ok(self.taken_apart()?.iter().map(Listed::of).collect())
    }

    /// What is in the inode, without one attribute and with another.
    fn exchanged(&self, key: &Key<'_>, new: Option<Attr<'_>>) -> Result<Option<Vec<u8>>> {
        shortform::exchange(self.inside(), self.geometry(), |attr| key.is(attr), new)
            .map_err(|damage| self.damaged(damage))
    }

    pub(super) fn inside_set(&mut self, key: &Key<'_>, value: &NewValue<'_>) -> Result<()> {
        if let NewValue::Inline(value) = value {
            let value = AttrValue::Inline(value);
            let new = Attr { namespace: key.namespace, incomplete: false, name: key.name, value };
            if self.set_in_place(key, &new)? {
                return Ok(());
            }
            if let Some(contents) = self.exchanged(key, Some(new))?
                && self.put_inside(&contents)
            {
                return Ok(());
            }
        }
        let bytes = self.inside().to_vec();
        let mut stay =
            shortform::attributes(&bytes, self.geometry()).map_err(|damage| self.damaged(damage))?;
        stay.retain(|attr| !key.is(attr));
        self.leave_inode(&stay, key, value)
    }

    /// Sets an attribute where the fork lies, whose border is moved for its first alone. `false` where others have to
    /// move.
    fn set_in_place(&mut self, key: &Key<'_>, new: &Attr<'_>) -> Result<bool> {
        if self.stored() == Stored::Nowhere {
            let size = shortform::size([(new.name.len(), new.value.length())]);
            let offset = size.and_then(|size| offset_for(self.state, size));
            let Some(offset) = offset else { return Ok(false) };
            self.begin_inside(offset);
        }
        let geometry = self.geometry();
        let area = self.state.area_mut(ForkKind::Attr);
        let set = shortform::set(area, geometry, |attr| key.is(attr), new);
        let set = set.map_err(|damage| self.damaged(damage))?;
        if set {
            self.state.mark(fields::ATTR_LOCAL);
        }
        Ok(set)
    }

    /// The attributes no longer fit the inode: they go to a leaf, or to several where leaves are small.
    fn leave_inode(&mut self, attributes: &[Attr<'_>], key: &Key<'_>, value: &NewValue<'_>) -> Result<()> {
        // A directory's first block, too, if that has to leave the inode.
        let data = 1 << self.shared.geometry.dir_block_log;
        self.ensure_room(super::most_new_blocks(self.geometry()) + data)?;
        self.ensure_extents(super::most_new_extents(self.geometry(), value))?;
        self.take_value(value)?;
        // The leaf's block, before the inode lets anything go.
        let run = self.take_first_block()?;
        self.begin_blocks()?;
        self.plant(run)?;
        for attr in attributes {
            self.tree_insert(attr)?;
        }
        self.tree_put(key, value)
    }

    pub(super) fn inside_remove(&mut self, key: &Key<'_>) -> Result<bool> {
        if !self.inside_has(key)? {
            return Ok(false);
        }
        match self.exchanged(key, None)? {
            Some(contents) if contents == shortform::EMPTY => self.end_fork()?,
            // Less than before, so it fits.
            Some(contents) => {
                let _ = self.state.set_attr_local(&contents);
            }
            None => {}
        }
        Ok(true)
    }
}
