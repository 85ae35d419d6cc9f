//! [`CanonicalJson`]: a value kept as its canonical bytes.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::write::RAW_TOKEN;
use super::{CanonicalError, MAX_DEPTH, check, decode, to_string};

/// Any JSON value, held as canonical text: compared, hashed, stored and sent without being taken apart.
///
/// Serialised inside another value it becomes part of it. A reader pays for a value only when it decodes it, and a frame full
/// of small values costs no more memory than the frame.
#[derive(Clone)]
pub struct CanonicalJson(Box<str>);

impl CanonicalJson {
    /// The canonical form of anything serializable.
    ///
    /// # Errors
    /// As [`super::to_vec`].
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, CanonicalError> {
        to_string(value).map(Self::trusted)
    }

    /// Checks bytes and keeps them.
    ///
    /// # Errors
    /// As [`super::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CanonicalError> {
        check(bytes)?;
        Ok(Self::trusted(String::from_utf8_lossy(bytes).into_owned()))
    }

    /// JSON `null`.
    #[must_use]
    pub fn null() -> Self {
        Self::trusted("null".to_owned())
    }

    /// Keeps text that is known to be canonical.
    pub(crate) fn trusted(text: String) -> Self {
        Self(text.into_boxed_str())
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The canonical bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The value as a tree.
    #[must_use]
    pub fn to_value(&self) -> Value {
        super::parse(self.as_bytes()).expect("checked when it was made")
    }

    /// The value as a type.
    ///
    /// # Errors
    /// [`CanonicalError::Shape`] when the value does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, CanonicalError> {
        // Almost every value is shallow; a deep one is recognised by serde_json's own limit and read the longer way.
        decode(self.as_bytes(), 0).or_else(|_| decode(self.as_bytes(), MAX_DEPTH))
    }
}

impl PartialEq for CanonicalJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for CanonicalJson {}

impl Default for CanonicalJson {
    fn default() -> Self {
        Self::null()
    }
}

impl fmt::Debug for CanonicalJson {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl TryFrom<&Value> for CanonicalJson {
    type Error = CanonicalError;

    fn try_from(value: &Value) -> Result<Self, CanonicalError> {
        Self::new(value)
    }
}

impl Serialize for CanonicalJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // As `serde_json` announces its own raw text: its writers and ours put it in as it is, `to_value` takes it apart.
        let mut raw = to.serialize_struct(RAW_TOKEN, 1)?;
        raw.serialize_field(RAW_TOKEN, &*self.0)?;
        raw.end()
    }
}

/// Accepts any JSON value and brings it into canonical form.
impl<'de> Deserialize<'de> for CanonicalJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        Self::new(&value).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for CanonicalJson {
    fn schema_name() -> Cow<'static, str> {
        "AnyValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}
