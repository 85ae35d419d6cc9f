//! The writer: a serde serializer that writes canonical bytes directly.
//!
//! Objects are written in the order in which their entries come; when that is not the canonical order, the finished object's
//! bytes are rearranged in place. So a value is walked once and no tree is built.

use std::cmp::Ordering;

use serde::ser::{self, Serialize, Serializer};

use super::key::KeyWriter;
use super::{CanonicalError, MAX_DEPTH, check, key_order, number};

/// How `serde_json` announces text that is already JSON (its `RawValue`).
pub(super) const RAW_TOKEN: &str = "$serde_json::private::RawValue";

pub(super) fn to_vec<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<Vec<u8>, CanonicalError> {
    let mut writer = Writer {
        limit,
        ..Writer::default()
    };
    writer.out.reserve(256);
    value.serialize(&mut writer)?;
    Ok(writer.out)
}

#[derive(Default)]
pub(super) struct Writer {
    out: Vec<u8>,
    /// Keys of the open objects, innermost last.
    keys: String,
    /// Entries of the open objects, innermost last.
    entries: Vec<Entry>,
    /// Used while an object is rearranged.
    scratch: Vec<u8>,
    depth: usize,
    limit: usize,
    /// The next string is JSON text that goes out as it is.
    raw: bool,
}

/// One entry of an open object: where its key is in `keys`, and its bytes in `out`.
#[derive(Clone, Copy)]
struct Entry {
    key: (usize, usize),
    at: (usize, usize),
}

impl Writer {
    fn enter(&mut self, open: u8) -> Result<(), CanonicalError> {
        if self.depth >= self.limit {
            return Err(CanonicalError::TooDeep { limit: self.limit });
        }
        self.depth += 1;
        self.out.push(open);
        Ok(())
    }

    fn leave(&mut self, close: u8) {
        self.depth -= 1;
        self.out.push(close);
    }

    fn object(&mut self) -> Result<Object<'_>, CanonicalError> {
        self.enter(b'{')?;
        Ok(Object {
            start: self.out.len(),
            first: self.entries.len(),
            keys: self.keys.len(),
            sorted: true,
            in_variant: false,
            raw: false,
            writer: self,
        })
    }

    /// Opens `{"variant":` around something else.
    fn variant(&mut self, variant: &str) -> Result<(), CanonicalError> {
        self.enter(b'{')?;
        write_string(&mut self.out, variant);
        self.out.push(b':');
        Ok(())
    }

    fn array(&mut self, in_variant: bool) -> Result<Array<'_>, CanonicalError> {
        self.enter(b'[')?;
        Ok(Array {
            writer: self,
            empty: true,
            in_variant,
        })
    }

    /// Text that claims to be JSON: it is checked, since nothing else vouches for it.
    fn raw_text(&mut self, text: &str) -> Result<(), CanonicalError> {
        let depth = check(text.as_bytes())?;
        if self.depth + depth > self.limit {
            return Err(CanonicalError::TooDeep {
                limit: self.limit.min(MAX_DEPTH),
            });
        }
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Writes a string with ECMAScript's escapes.
fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[start..at]);
        start = at + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x09 => out.extend_from_slice(b"\\t"),
            0x0A => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            0x0D => out.extend_from_slice(b"\\r"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

pub(super) struct Array<'a> {
    writer: &'a mut Writer,
    empty: bool,
    in_variant: bool,
}

impl Array<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), CanonicalError> {
        if !std::mem::take(&mut self.empty) {
            self.writer.out.push(b',');
        }
        item.serialize(&mut *self.writer)
    }

    fn close(self) {
        self.writer.leave(b']');
        if self.in_variant {
            self.writer.leave(b'}');
        }
    }
}

pub(super) struct Object<'a> {
    writer: &'a mut Writer,
    /// First byte after `{`.
    start: usize,
    /// First of its entries in the writer's stack.
    first: usize,
    /// First byte of its keys in the writer's stack.
    keys: usize,
    sorted: bool,
    /// Whether `{"variant":` is open around it.
    in_variant: bool,
    /// It is no object but announced JSON text.
    raw: bool,
}

impl Object<'_> {
    pub(super) fn key(&mut self, key: &str) -> Result<(), CanonicalError> {
        let writer = &mut *self.writer;
        if let Some(last) = writer.entries[self.first..].last() {
            match key_order(&writer.keys[last.key.0..last.key.1], key) {
                Ordering::Less => {}
                Ordering::Equal => return Err(CanonicalError::DuplicateKey { key: key.to_owned() }),
                Ordering::Greater => self.sorted = false,
            }
            writer.out.push(b',');
        }
        let (key_start, start) = (writer.keys.len(), writer.out.len());
        writer.keys.push_str(key);
        writer.entries.push(Entry {
            key: (key_start, writer.keys.len()),
            at: (start, start),
        });
        write_string(&mut writer.out, key);
        writer.out.push(b':');
        Ok(())
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        value.serialize(&mut *self.writer)?;
        let end = self.writer.out.len();
        if let Some(entry) = self.writer.entries.last_mut() {
            entry.at.1 = end;
        }
        Ok(())
    }

    fn field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), CanonicalError> {
        if self.raw {
            self.writer.raw = true;
            return value.serialize(&mut *self.writer);
        }
        self.key(key)?;
        self.value(value)
    }

    fn close(mut self) -> Result<(), CanonicalError> {
        if self.raw {
            return Ok(());
        }
        if !self.sorted {
            self.rearrange()?;
        }
        self.writer.entries.truncate(self.first);
        self.writer.keys.truncate(self.keys);
        self.writer.leave(b'}');
        if self.in_variant {
            self.writer.leave(b'}');
        }
        Ok(())
    }

    /// Brings the entries of this object into canonical order.
    fn rearrange(&mut self) -> Result<(), CanonicalError> {
        let Writer {
            out,
            keys,
            entries,
            scratch,
            ..
        } = &mut *self.writer;
        let entries = &mut entries[self.first..];
        let key = |entry: &Entry| &keys[entry.key.0..entry.key.1];
        entries.sort_unstable_by(|a, b| key_order(key(a), key(b)));
        if let Some(pair) = entries.windows(2).find(|pair| key(&pair[0]) == key(&pair[1])) {
            return Err(CanonicalError::DuplicateKey {
                key: key(&pair[0]).to_owned(),
            });
        }
        scratch.clear();
        scratch.extend_from_slice(&out[self.start..]);
        out.truncate(self.start);
        for (index, entry) in entries.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&scratch[entry.at.0 - self.start..entry.at.1 - self.start]);
        }
        Ok(())
    }
}

impl<'a> Serializer for &'a mut Writer {
    type Ok = ();
    type Error = CanonicalError;
    type SerializeSeq = Array<'a>;
    type SerializeTuple = Array<'a>;
    type SerializeTupleStruct = Array<'a>;
    type SerializeTupleVariant = Array<'a>;
    type SerializeMap = Object<'a>;
    type SerializeStruct = Object<'a>;
    type SerializeStructVariant = Object<'a>;

    fn serialize_bool(self, value: bool) -> Result<(), CanonicalError> {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }
    fn serialize_i8(self, value: i8) -> Result<(), CanonicalError> {
        self.serialize_i64(value.into())
    }
    fn serialize_i16(self, value: i16) -> Result<(), CanonicalError> {
        self.serialize_i64(value.into())
    }
    fn serialize_i32(self, value: i32) -> Result<(), CanonicalError> {
        self.serialize_i64(value.into())
    }
    fn serialize_i64(self, value: i64) -> Result<(), CanonicalError> {
        number::write_i64(&mut self.out, value);
        Ok(())
    }
    fn serialize_i128(self, value: i128) -> Result<(), CanonicalError> {
        self.serialize_f64(value as f64)
    }
    fn serialize_u8(self, value: u8) -> Result<(), CanonicalError> {
        self.serialize_u64(value.into())
    }
    fn serialize_u16(self, value: u16) -> Result<(), CanonicalError> {
        self.serialize_u64(value.into())
    }
    fn serialize_u32(self, value: u32) -> Result<(), CanonicalError> {
        self.serialize_u64(value.into())
    }
    fn serialize_u64(self, value: u64) -> Result<(), CanonicalError> {
        number::write_u64(&mut self.out, value);
        Ok(())
    }
    fn serialize_u128(self, value: u128) -> Result<(), CanonicalError> {
        self.serialize_f64(value as f64)
    }
    fn serialize_f32(self, value: f32) -> Result<(), CanonicalError> {
        self.serialize_f64(value.into())
    }
    fn serialize_f64(self, value: f64) -> Result<(), CanonicalError> {
        if !value.is_finite() {
            return Err(CanonicalError::NotFinite {
                value: value.to_string(),
            });
        }
        number::write_f64(&mut self.out, value);
        Ok(())
    }
    fn serialize_char(self, value: char) -> Result<(), CanonicalError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }
    fn serialize_str(self, value: &str) -> Result<(), CanonicalError> {
        if std::mem::take(&mut self.raw) {
            return self.raw_text(value);
        }
        write_string(&mut self.out, value);
        Ok(())
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<(), CanonicalError> {
        value.serialize(self)
    }
    fn serialize_none(self) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CanonicalError> {
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), CanonicalError> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), CanonicalError> {
        self.serialize_unit()
    }
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), CanonicalError> {
        self.serialize_str(variant)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), CanonicalError> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), CanonicalError> {
        self.variant(variant)?;
        value.serialize(&mut *self)?;
        self.leave(b'}');
        Ok(())
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Array<'a>, CanonicalError> {
        self.array(false)
    }
    fn serialize_tuple(self, _: usize) -> Result<Array<'a>, CanonicalError> {
        self.array(false)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Array<'a>, CanonicalError> {
        self.array(false)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Array<'a>, CanonicalError> {
        self.variant(variant)?;
        self.array(true)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Object<'a>, CanonicalError> {
        self.object()
    }
    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Object<'a>, CanonicalError> {
        if name == RAW_TOKEN {
            return Ok(Object {
                start: 0,
                first: 0,
                keys: 0,
                sorted: true,
                in_variant: false,
                raw: true,
                writer: self,
            });
        }
        self.object()
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object<'a>, CanonicalError> {
        self.variant(variant)?;
        let mut object = self.object()?;
        object.in_variant = true;
        Ok(object)
    }
}

impl ser::SerializeSeq for Array<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), CanonicalError> {
        self.item(item)
    }
    fn end(self) -> Result<(), CanonicalError> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeTuple for Array<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), CanonicalError> {
        self.item(item)
    }
    fn end(self) -> Result<(), CanonicalError> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeTupleStruct for Array<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), CanonicalError> {
        self.item(item)
    }
    fn end(self) -> Result<(), CanonicalError> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeTupleVariant for Array<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), CanonicalError> {
        self.item(item)
    }
    fn end(self) -> Result<(), CanonicalError> {
        self.close();
        Ok(())
    }
}

impl ser::SerializeMap for Object<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CanonicalError> {
        key.serialize(KeyWriter(self))
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CanonicalError> {
        self.value(value)
    }
    fn end(self) -> Result<(), CanonicalError> {
        self.close()
    }
}

impl ser::SerializeStruct for Object<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), CanonicalError> {
        self.field(key, value)
    }
    fn end(self) -> Result<(), CanonicalError> {
        self.close()
    }
}

impl ser::SerializeStructVariant for Object<'_> {
    type Ok = ();
    type Error = CanonicalError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), CanonicalError> {
        self.field(key, value)
    }
    fn end(self) -> Result<(), CanonicalError> {
        self.close()
    }
}
