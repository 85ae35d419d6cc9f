//! Object keys: strings, and what has one obvious string form (integers, characters, unit variants).

use serde::ser::{Impossible, Serialize, Serializer};

use super::CanonicalError;
use super::write::Object;

/// Serialises one map key into an open object.
pub(super) struct KeyWriter<'a, 'w>(pub(super) &'a mut Object<'w>);

macro_rules! integer_keys {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<(), CanonicalError> {
            self.0.key(&value.to_string())
        })*
    };
}

macro_rules! refused_keys {
    ($($method:ident($($type:ty),*) -> $result:ty),* $(,)?) => {
        $(fn $method(self, $(_: $type),*) -> Result<$result, CanonicalError> {
            Err(CanonicalError::KeyNotString)
        })*
    };
}

type Never = Impossible<(), CanonicalError>;

impl Serializer for KeyWriter<'_, '_> {
    type Ok = ();
    type Error = CanonicalError;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Never;
    type SerializeStructVariant = Never;

    integer_keys! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    fn serialize_char(self, value: char) -> Result<(), CanonicalError> {
        self.0.key(value.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, value: &str) -> Result<(), CanonicalError> {
        self.0.key(value)
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), CanonicalError> {
        self.0.key(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), CanonicalError> {
        value.serialize(self)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), CanonicalError> {
        Err(CanonicalError::KeyNotString)
    }

    refused_keys! {
        serialize_bool(bool) -> (), serialize_f32(f32) -> (), serialize_f64(f64) -> (), serialize_bytes(&[u8]) -> (),
        serialize_none() -> (), serialize_unit() -> (), serialize_unit_struct(&'static str) -> (),
        serialize_seq(Option<usize>) -> Never, serialize_tuple(usize) -> Never,
        serialize_tuple_struct(&'static str, usize) -> Never,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Never,
        serialize_map(Option<usize>) -> Never, serialize_struct(&'static str, usize) -> Never,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Never,
    }
}
