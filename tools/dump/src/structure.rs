//! A decoded structure, and the errors of its verifiers.

use std::fmt;

use crate::types::Type;
use crate::value::Struct;

/// A decoded structure, which may be damaged.
#[derive(Clone, Debug)]
pub struct Structure {
    /// The type as which it was decoded.
    pub kind: Type,
    /// Its fields.
    pub fields: Struct,
    /// The errors of the verifiers; empty for an undamaged structure.
    pub objections: Vec<String>,
}

impl Structure {
    /// A structure without errors.
    pub fn new(kind: Type, fields: Struct) -> Self {
        Self { kind, fields, objections: Vec::new() }
    }

    /// Adds the error of a verifier, if any.
    pub fn with_check<T, E: fmt::Display>(mut self, result: Result<T, E>) -> Self {
        self.check(result);
        self
    }

    /// Adds the error of a verifier, if any. Returns its value otherwise.
    pub fn check<T, E: fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(damage) => {
                let objection = damage.to_string();
                if !self.objections.contains(&objection) {
                    self.objections.push(objection);
                }
                None
            }
        }
    }
}
