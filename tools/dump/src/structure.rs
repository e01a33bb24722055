//! One structure taken apart: its fields, and what its verifier objects to.

use std::fmt;

use crate::types::Type;
use crate::value::Struct;

/// A structure's fields with what is wrong with it. Fields are shown whatever the verifier says.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What it was taken for.
    pub kind: Type,
    /// Its fields.
    pub fields: Struct,
    /// What the verifiers object to, one sentence each; empty for a good structure.
    pub objections: Vec<String>,
}

impl Shown {
    /// A structure with no objections yet.
    pub fn new(kind: Type, fields: Struct) -> Self {
        Self { kind, fields, objections: Vec::new() }
    }

    /// Adds the error of a verifier that refused.
    pub fn verified<T, E: fmt::Display>(mut self, outcome: Result<T, E>) -> Self {
        self.object(outcome);
        self
    }

    /// Adds the error of a verifier that refused; returns what one that did not has to say.
    pub fn object<T, E: fmt::Display>(&mut self, outcome: Result<T, E>) -> Option<T> {
        match outcome {
            Ok(good) => Some(good),
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
