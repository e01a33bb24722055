//! Changes of attributes that the log asks for and that no done item answers: made by Linux, for parent pointers and
//! where attributes are logged.
//!
//! Linux makes such a change in steps, and may have been stopped behind any of them. Here it is one transaction, with
//! the done item: whatever there is of the attribute goes first, also what is incomplete.

use base::Ino;
use format::attr::parent::ParentRecord;
use format::attr::{Namespace, flags};
use format::damage::Damage;
use format::dir;
use format::log::attr::AttrOperation;
use format::log::item::ItemType;
use inode::InodeRef;
use inode::attr::{AttrKey, NewAttrValue};
use journal::engine::RecoveredIntent;
use journal::recovery::AttrChange;

use crate::operation::{Locked, Operation};
use crate::recover::damaged;
use crate::{Result, Volume};

const NAME: &str = "attribute intent";

/// The attribute that a name, with the value of a parent pointer, stands for.
fn key<'c>(change: &'c AttrChange, name: &'c [u8], value: &[u8]) -> std::result::Result<AttrKey<'c>, Damage> {
    if change.operation.is_parent() {
        dir::verify_name(NAME, name)?;
        let record = ParentRecord::view_value(value)
            .ok_or_else(|| Damage::new(NAME, "value_len", "that of a parent pointer", value.len()))?;
        return Ok(AttrKey::parent(name, Ino(record.ino.get()), record.generation.get()));
    }
    let bits = change.namespace as u8 & flags::NAMESPACES; // all known bits are low
    match Namespace::from_flags(bits) {
        Some(namespace) if namespace != Namespace::Parent && !name.contains(&0) => {
            Ok(AttrKey::new(namespace, name))
        }
        _ => Err(Damage::new(NAME, "attr_filter", "a namespace, and a name without NUL", change.namespace)),
    }
}

impl Volume {
    /// Does what an intent asks for.
    pub(crate) fn finish_attribute(
        &self,
        file: &InodeRef,
        change: &AttrChange,
        adopted: Option<RecoveredIntent>,
    ) -> Result<()> {
        let generation = file.read().core().generation.get();
        if change.operation.is_parent() && generation != change.generation {
            let damage = Damage::new(NAME, "igen", generation, change.generation);
            return Err(damaged(change.ino, damage));
        }
        let old = key(change, &change.name, &change.value).map_err(|damage| damaged(change.ino, damage))?;
        let length = change.value.len();
        let sets = matches!(change.operation, AttrOperation::Set | AttrOperation::Replace);
        let value = self.value_bytes(&old, length).filter(|_| sets);
        let mut transaction = self.begin_attribute(change.ino, value)?;
        if let Some(adopted) = adopted {
            transaction.tx.log_done(adopted, ItemType::Attrd);
        }
        let mut state = file.lock();
        match change.operation {
            AttrOperation::Set | AttrOperation::Replace => {
                transaction.put_attribute(&mut state, &old, &change.value)?;
            }
            AttrOperation::ParentSet => transaction.set_inline(&mut state, &old, &change.value)?,
            AttrOperation::Remove | AttrOperation::ParentRemove => {
                transaction.attributes(&mut state, |attributes| attributes.remove(&old))?;
            }
            AttrOperation::ParentReplace => {
                let new = key(change, &change.new_name, &change.new_value)
                    .map_err(|damage| damaged(change.ino, damage))?;
                transaction.attributes(&mut state, |attributes| attributes.remove(&old))?;
                transaction.set_inline(&mut state, &new, &change.new_value)?;
            }
        }
        transaction.commit(&mut [&mut state])
    }
}

impl Operation<'_> {
    /// Parent pointers are short.
    fn set_inline(&mut self, state: &mut Locked, key: &AttrKey<'_>, value: &[u8]) -> Result<()> {
        self.attributes(state, |attributes| attributes.set(key, &NewAttrValue::Inline(value)))
    }
}
