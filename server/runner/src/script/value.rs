//! JavaScript values to JSON, as `JSON.stringify` would, except that what it drops or garbles is an error with its path.

use piw_engine::limits::VALUE_DEPTH;
use rquickjs::atom::PredefinedAtom;
use rquickjs::{Ctx, Object, String as JsString, Value, function::This};
use serde_json::{Map, Number, Value as Json};

/// Why a value is not JSON.
#[derive(Debug)]
pub(super) enum NotJson {
    /// The value at `path` cannot be represented.
    Bad {
        /// For example `$.items[3].size`.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A getter or `toJSON` threw; the exception is pending in the context.
    Threw(rquickjs::Error),
}

impl From<rquickjs::Error> for NotJson {
    fn from(error: rquickjs::Error) -> Self {
        Self::Threw(error)
    }
}

/// Converts `value`; `undefined` at the top becomes `null`.
pub(super) fn to_json<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> Result<Json, NotJson> {
    let mut walk = Walk {
        ctx: ctx.clone(),
        path: Vec::new(),
        ancestors: Vec::new(),
    };
    Ok(walk.convert(value, "")?.unwrap_or(Json::Null))
}

enum Step {
    Key(String),
    Index(usize),
}

struct Walk<'js> {
    ctx: Ctx<'js>,
    path: Vec<Step>,
    ancestors: Vec<Object<'js>>,
}

impl<'js> Walk<'js> {
    fn bad<T>(&self, why: impl Into<String>) -> Result<T, NotJson> {
        let mut path = String::from("$");
        for step in &self.path {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) if is_identifier(key) => {
                    path.push('.');
                    path.push_str(key);
                }
                Step::Key(key) => path.push_str(&format!("[{}]", Json::String(key.clone()))),
            }
        }
        Err(NotJson::Bad { path, why: why.into() })
    }

    /// `None` is `undefined`.
    fn convert(&mut self, value: Value<'js>, key: &str) -> Result<Option<Json>, NotJson> {
        if value.is_undefined() {
            return Ok(None);
        }
        if value.is_null() {
            return Ok(Some(Json::Null));
        }
        if let Some(flag) = value.as_bool() {
            return Ok(Some(Json::Bool(flag)));
        }
        if let Some(number) = value.as_int() {
            return Ok(Some(Json::from(number)));
        }
        if let Some(number) = value.as_float() {
            return Ok(Some(json_number(number)));
        }
        if let Some(string) = value.as_string() {
            return match string.to_string() {
                Ok(text) => Ok(Some(Json::String(text))),
                Err(rquickjs::Error::Utf8(_)) => self.bad("is a string with a lone surrogate"),
                Err(error) => Err(error.into()),
            };
        }
        if value.is_symbol() {
            return self.bad("is a symbol");
        }
        if value.is_function() {
            return self.bad("is a function");
        }
        if value.is_big_int() {
            return self.bad("is a BigInt");
        }
        match value.into_object() {
            Some(object) => self.object(object, key),
            None => self.bad("has no JSON form"),
        }
    }

    fn object(&mut self, object: Object<'js>, key: &str) -> Result<Option<Json>, NotJson> {
        if self.ancestors.contains(&object) {
            return self.bad("refers back to an object that contains it");
        }
        if self.ancestors.len() >= VALUE_DEPTH {
            return self.bad(format!("is nested deeper than {VALUE_DEPTH} levels"));
        }
        let to_json: Value<'js> = object.get(PredefinedAtom::ToJSON)?;
        if let Some(to_json) = to_json.into_function() {
            let replaced: Value<'js> = to_json.call((This(object.clone()), key))?;
            if replaced.as_object() != Some(&object) {
                self.ancestors.push(object);
                let converted = self.convert(replaced, key);
                self.ancestors.pop();
                return converted;
            }
        }
        self.ancestors.push(object.clone());
        let converted = if object.is_array() {
            self.array(&object)
        } else {
            self.plain(&object)
        };
        self.ancestors.pop();
        converted.map(Some)
    }

    fn array(&mut self, object: &Object<'js>) -> Result<Json, NotJson> {
        let length: usize = object.get(PredefinedAtom::Length)?;
        let mut items = Vec::with_capacity(length.min(4096));
        for index in 0..length {
            let item: Value<'js> = object.get(u32::try_from(index).unwrap_or(u32::MAX))?;
            self.path.push(Step::Index(index));
            let item = self.convert(item, "")?;
            self.path.pop();
            items.push(item.unwrap_or(Json::Null));
        }
        Ok(Json::Array(items))
    }

    fn plain(&mut self, object: &Object<'js>) -> Result<Json, NotJson> {
        if let Some(boxed) = self.unbox(object)? {
            return Ok(boxed);
        }
        let mut members = Map::new();
        // Keys as engine strings: their conversion checks for lone surrogates, that of atoms does not.
        for key in object.keys::<JsString<'js>>() {
            let key = match key.and_then(|key| key.to_string()) {
                Ok(key) => key,
                Err(rquickjs::Error::Utf8(_)) => return self.bad("has a key with a lone surrogate"),
                Err(error) => return Err(error.into()),
            };
            let member: Value<'js> = object.get(&key)?;
            self.path.push(Step::Key(key.clone()));
            let member = self.convert(member, &key)?;
            self.path.pop();
            if let Some(member) = member {
                members.insert(key, member);
            }
        }
        Ok(Json::Object(members))
    }

    /// `new String("a")` and its like stand for their primitive.
    fn unbox(&mut self, object: &Object<'js>) -> Result<Option<Json>, NotJson> {
        let globals = self.ctx.globals();
        for name in ["String", "Number", "Boolean"] {
            let class: Value<'js> = globals.get(name)?;
            let Some(class) = class.into_object() else { continue };
            if object.is_instance_of(&class) {
                let value_of: Value<'js> = object.get("valueOf")?;
                if let Some(value_of) = value_of.into_function() {
                    let primitive: Value<'js> = value_of.call((This(object.clone()),))?;
                    if !primitive.is_object() {
                        return self.convert(primitive, "");
                    }
                }
            }
        }
        Ok(None)
    }
}

fn json_number(number: f64) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "checked: an integer within 53 bits")]
        return Json::from(number as i64);
    }
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}

fn is_identifier(key: &str) -> bool {
    let mut chars = key.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
}
