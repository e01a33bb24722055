//! Attributes within the inode.

use format::attr::edit::shortform;
use format::attr::{Attr, Value};

use super::{Attributes, Key, Listed, NewValue, Result, Stored};

impl Attributes<'_> {
    /// The bytes of the attributes in the inode; empty where there are none.
    fn inside(&self) -> Vec<u8> {
        match (self.stored(), self.state.attr_local()) {
            (Stored::Inside, Some(bytes)) => bytes.to_vec(),
            _ => shortform::init(),
        }
    }

    fn taken_apart<'b>(&self, bytes: &'b [u8]) -> Result<Vec<Attr<'b>>>
    where
        Self: 'b,
    {
        shortform::attributes(bytes, &self.shared.geometry).map_err(|damage| self.damaged(damage))
    }

    pub(super) fn inside_get(&self, key: &Key<'_>) -> Result<Option<Vec<u8>>> {
        let bytes = self.inside();
        let found = self.taken_apart(&bytes)?.into_iter().find(|attr| key.is(attr));
        Ok(found.and_then(|attr| match attr.value {
            Value::Inline(value) => Some(value.to_vec()),
            Value::Remote { .. } => None,
        }))
    }

    pub(super) fn inside_list(&self) -> Result<Vec<Listed>> {
        let bytes = self.inside();
        Ok(self.taken_apart(&bytes)?.iter().map(Listed::of).collect())
    }

    pub(super) fn inside_set(&mut self, key: &Key<'_>, value: &NewValue<'_>) -> Result<()> {
        let bytes = self.inside();
        let mut attributes = self.taken_apart(&bytes)?;
        attributes.retain(|attr| !key.is(attr));
        if let NewValue::Inline(value) = value {
            let new = Attr {
                namespace: key.namespace,
                incomplete: false,
                name: key.name,
                value: Value::Inline(value),
            };
            let all = attributes.iter().copied().chain([new]);
            if shortform::size(all.clone().map(|attr| (attr.name.len(), attr.value.length()))).is_some()
                && let Some(contents) = shortform::build(all)
                && self.put_inside(&contents)
            {
                return Ok(());
            }
        }
        self.leave_inode(&attributes, key, value)
    }

    /// The attributes no longer fit the inode: they go to a leaf, or to several where leaves are small.
    fn leave_inode(&mut self, attributes: &[Attr<'_>], key: &Key<'_>, value: &NewValue<'_>) -> Result<()> {
        // A directory's first block, too, if that has to leave the inode.
        let data = 1 << self.shared.geometry.dir_block_log;
        self.ensure_room(super::most_new_blocks(self.geometry()) + data)?;
        self.begin_blocks()?;
        self.plant()?;
        for attr in attributes {
            self.tree_insert(attr)?;
        }
        self.tree_put(key, value)
    }

    pub(super) fn inside_remove(&mut self, key: &Key<'_>) -> Result<bool> {
        let bytes = self.inside();
        let mut attributes = self.taken_apart(&bytes)?;
        let before = attributes.len();
        attributes.retain(|attr| !key.is(attr));
        if attributes.len() == before {
            return Ok(false);
        }
        if attributes.is_empty() {
            self.end_fork()?;
        } else if let Some(contents) = shortform::build(attributes) {
            // Less than before, so it fits.
            let _ = self.state.set_attr_local(&contents);
        }
        Ok(true)
    }
}
