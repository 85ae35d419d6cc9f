//! Taking an envelope apart, field by field, with errors that name the field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{CLIENT_SCHEMA, EnvelopeError, is_id, is_revision};
use crate::canonical::{self, CanonicalJson};
use crate::ops::OperationError;

/// Every field of any envelope.
const KNOWN: &[&str] = &[
    "clientId",
    "connectionId",
    "error",
    "event",
    "expectedRevision",
    "idempotencyKey",
    "operation",
    "outcome",
    "packageVersion",
    "payload",
    "receipt",
    "requestId",
    "revision",
    "runId",
    "schema",
    "subscriptionId",
    "type",
];

/// The fields of an envelope that were not taken yet. A frame full of unknown fields costs no more than one.
pub(super) struct Fields<'a> {
    fields: BTreeMap<&'static str, &'a RawValue>,
    /// The first field that no envelope has.
    unknown: Option<String>,
    /// Kind of envelope, for errors.
    pub(super) kind: &'static str,
}

/// Reads the top level of an object.
struct TopLevel;

impl<'de> Visitor<'de> for TopLevel {
    type Value = Fields<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut found = Fields {
            fields: BTreeMap::new(),
            unknown: None,
            kind: "the envelope",
        };
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if let Some(known) = KNOWN.iter().find(|known| **known == key) {
                found.fields.insert(known, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
                found.unknown.get_or_insert_with(|| key.into_owned());
            }
        }
        Ok(found)
    }
}

impl<'a> Fields<'a> {
    /// Reads the top level of a frame whose bytes are canonical.
    pub(super) fn read(frame: &'a [u8]) -> Result<Self, EnvelopeError> {
        canonical::check(frame)?;
        let mut reader = serde_json::Deserializer::from_slice(frame);
        reader.deserialize_map(TopLevel).map_err(|_| EnvelopeError::NotAnObject)
    }

    fn take(&mut self, field: &'static str) -> Result<&'a RawValue, EnvelopeError> {
        self.fields.remove(field).ok_or(EnvelopeError::Missing {
            envelope: self.kind,
            field,
        })
    }

    fn invalid(field: &'static str, expected: &'static str, found: &RawValue) -> EnvelopeError {
        EnvelopeError::Invalid {
            field,
            expected,
            found: shortened(found.get()),
        }
    }

    fn text(&mut self, field: &'static str) -> Result<String, EnvelopeError> {
        let raw = self.take(field)?;
        serde_json::from_str(raw.get()).map_err(|_| Self::invalid(field, "a string", raw))
    }

    /// Checks the schema and takes the type.
    pub(super) fn envelope_type(&mut self) -> Result<String, EnvelopeError> {
        let schema = self.text("schema")?;
        if schema != CLIENT_SCHEMA {
            return Err(EnvelopeError::Schema {
                found: shortened(&format!("{schema:?}")),
            });
        }
        self.text("type")
    }

    /// An id of 1–256 bytes.
    pub(super) fn id(&mut self, field: &'static str) -> Result<String, EnvelopeError> {
        let id = self.text(field)?;
        if is_id(&id) {
            return Ok(id);
        }
        Err(EnvelopeError::Invalid {
            field,
            expected: "an id of 1 to 256 bytes",
            found: format!("{} bytes", id.len()),
        })
    }

    /// An integer of 0…2^53−1.
    pub(super) fn revision(&mut self, field: &'static str) -> Result<u64, EnvelopeError> {
        let raw = self.take(field)?;
        let value = serde_json::from_str::<u64>(raw.get())
            .ok()
            .filter(|value| is_revision(*value));
        value.ok_or_else(|| Self::invalid(field, "an integer from 0 to 9007199254740991", raw))
    }

    /// A name of a closed list.
    pub(super) fn name<T>(
        &mut self,
        field: &'static str,
        list: &'static str,
        find: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, EnvelopeError> {
        let name = self.text(field)?;
        find(&name).ok_or_else(|| EnvelopeError::Unknown {
            list,
            found: shortened(&format!("{name:?}")),
        })
    }

    /// Any value.
    pub(super) fn json(&mut self, field: &'static str) -> Result<CanonicalJson, EnvelopeError> {
        let raw = self.take(field)?;
        Ok(CanonicalJson::trusted(raw.get().to_owned()))
    }

    /// The error of a response.
    pub(super) fn error(&mut self, field: &'static str) -> Result<OperationError, EnvelopeError> {
        let raw = self.take(field)?;
        serde_json::from_str(raw.get()).map_err(|_| Self::invalid(field, "an error with `reason` and `message`", raw))
    }

    /// A field that may be absent (but not `null`).
    pub(super) fn optional<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self, &'static str) -> Result<T, EnvelopeError>,
    ) -> Result<Option<T>, EnvelopeError> {
        if self.fields.contains_key(field) {
            read(self, field).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Refuses what is left.
    pub(super) fn end(self) -> Result<(), EnvelopeError> {
        match self.unknown.as_deref().or_else(|| self.fields.keys().next().copied()) {
            None => Ok(()),
            Some(field) => Err(EnvelopeError::UnknownField {
                envelope: self.kind,
                field: shortened(field),
            }),
        }
    }
}

/// Text of a peer in an error: at most 80 characters of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
