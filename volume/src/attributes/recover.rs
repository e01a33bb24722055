//! Finishing attribute intents found in the log. Linux logs them for parent pointers and with logged attributes.
//!
//! Linux changes an attribute in several transactions, and a crash may come between any of them. Here the change is one
//! transaction, with the done item. It first removes what exists of the attribute, also an incomplete entry.

use base::Ino;
use format::attr::parent::ParentRecord;
use format::attr::{Namespace, flags};
use format::damage::Damage;
use format::dir;
use format::log::attr::AttrOperation;
use format::log::item::ItemType;
use inode::attr::{AttrKey, NewAttrValue};
use inode::{InodeRef, LockedInode};
use journal::engine::RecoveredIntent;
use journal::recovery::AttrChange;

use crate::operation::Operation;
use crate::recover::damaged;
use crate::{Result, Volume};

const NAME: &str = "attribute intent";

/// Returns the key of an attribute of an intent. The value of a parent pointer is part of its key.
fn key<'c>(intent: &'c AttrChange, name: &'c [u8], value: &[u8]) -> std::result::Result<AttrKey<'c>, Damage> {
    if intent.operation.is_parent() {
        dir::verify_name(NAME, name)?;
        let record = ParentRecord::view_value(value)
            .ok_or_else(|| Damage::new(NAME, "value_len", "that of a parent pointer", value.len()))?;
        return Ok(AttrKey::parent(name, Ino(record.ino.get()), record.generation.get()));
    }
    let bits = intent.namespace as u8 & flags::NAMESPACES; // all known bits are low
    match Namespace::from_flags(bits) {
        Some(namespace) if namespace != Namespace::Parent && !name.contains(&0) => {
            Ok(AttrKey::new(namespace, name))
        }
        _ => Err(Damage::new(NAME, "attr_filter", "a namespace, and a name without NUL", intent.namespace)),
    }
}

impl Volume {
    /// Carries out an attribute intent, and logs its done item if its record is kept in the log.
    pub(crate) fn finish_attribute(
        &self,
        file: &InodeRef,
        intent: &AttrChange,
        adopted: Option<RecoveredIntent>,
    ) -> Result<()> {
        let generation = file.read().core().generation.get();
        if intent.operation.is_parent() && generation != intent.generation {
            let damage = Damage::new(NAME, "igen", generation, intent.generation);
            return Err(damaged(intent.ino, damage));
        }
        let old = key(intent, &intent.name, &intent.value).map_err(|damage| damaged(intent.ino, damage))?;
        let sets_value = matches!(intent.operation, AttrOperation::Set | AttrOperation::Replace);
        let remote_len = self.remote_value_len(&old, intent.value.len()).filter(|_| sets_value);
        let mut operation = self.begin_attribute(intent.ino, remote_len)?;
        if let Some(adopted) = adopted {
            operation.tx.log_done(adopted, ItemType::Attrd);
        }
        let mut state = file.lock();
        match intent.operation {
            AttrOperation::Set | AttrOperation::Replace => {
                operation.put_attribute(&mut state, &old, &intent.value)?;
            }
            AttrOperation::ParentSet => operation.set_inline(&mut state, &old, &intent.value)?,
            AttrOperation::Remove | AttrOperation::ParentRemove => {
                operation.attributes(&mut state, |attributes| attributes.remove(&old))?;
            }
            AttrOperation::ParentReplace => {
                let new = key(intent, &intent.new_name, &intent.new_value)
                    .map_err(|damage| damaged(intent.ino, damage))?;
                operation.attributes(&mut state, |attributes| attributes.remove(&old))?;
                operation.set_inline(&mut state, &new, &intent.new_value)?;
            }
        }
        operation.commit(&mut [&mut state])
    }
}

impl Operation<'_> {
    /// Sets a parent pointer, whose value is always inline.
    fn set_inline(&mut self, state: &mut LockedInode, key: &AttrKey<'_>, value: &[u8]) -> Result<()> {
        self.attributes(state, |attributes| attributes.set(key, &NewAttrValue::Inline(value)))
    }
}
