//! Connects the module store to the engine's module system.

use std::cell::RefCell;
use std::rc::Rc;

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Exception, Function, Module, Object, Persistent, Result, String as JsString, Value};

use super::builtins;
use super::modules::{ImportError, Kind};
use super::shared::Shared;

/// The object that the bootstrap script returned; empty before it ran and while the runtime is dropped.
pub(super) type GlueSlot = Rc<RefCell<Option<Persistent<Object<'static>>>>>;

/// Throws `error` as a JavaScript error with Node's `code`.
pub(super) fn throw_import(ctx: &Ctx<'_>, error: &ImportError) -> Error {
    match Exception::from_message(ctx.clone(), &error.message) {
        Ok(exception) => match exception.as_object().set("code", error.code) {
            Ok(()) => exception.throw(),
            Err(error) => error,
        },
        Err(error) => error,
    }
}

pub(super) struct Resolve(pub Rc<Shared>);

impl Resolver for Resolve {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        // Modules made here import nothing; everything else names a file, a package or a builtin.
        if builtins::internal_name(name).is_none() && !self.0.loader_open.get() {
            return Err(self.0.touch(ctx, &format!("import(\"{name}\")")));
        }
        if builtins::internal_name(name).is_none() && self.0.gate.borrow().is_some() && !self.0.pure {
            return Err(self.0.touch(ctx, &format!("import(\"{name}\")")));
        }
        self.0
            .modules
            .resolve(base, name, false)
            .map_err(|error| throw_import(ctx, &error))
    }
}

pub(super) struct Load {
    pub shared: Rc<Shared>,
    pub glue: GlueSlot,
}

impl Loader for Load {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        if builtins::is_internal(name) {
            let exports = self.call_glue(ctx, "internal", name)?;
            return synthetic(ctx, name, exports);
        }
        let source = self
            .shared
            .modules
            .source(name)
            .map_err(|error| throw_import(ctx, &error))?;
        match source.kind {
            Kind::Esm => {
                let module = Module::declare(ctx.clone(), name, source.code.as_str()).map_err(|error| {
                    match (error, self.shared.modules.explain_syntax(name)) {
                        (Error::Exception, Some(message)) => {
                            ctx.catch();
                            throw_import(
                                ctx,
                                &ImportError {
                                    code: "ERR_SYNTAX",
                                    message,
                                },
                            )
                        }
                        (error, _) => error,
                    }
                })?;
                set_meta(&module.meta()?, name)?;
                Ok(module)
            }
            Kind::CommonJs => {
                let exports = self.call_glue(ctx, "commonJs", name)?;
                synthetic(ctx, name, exports)
            }
            Kind::Json => {
                let value = ctx.json_parse(source.code.as_str())?;
                let module = Module::declare(ctx.clone(), name, "export default import.meta.value;")?;
                module.meta()?.set("value", value)?;
                Ok(module)
            }
        }
    }
}

impl Load {
    fn call_glue<'js>(&self, ctx: &Ctx<'js>, function: &str, name: &str) -> Result<Value<'js>> {
        let glue = self.glue.borrow().clone();
        let Some(glue) = glue else {
            return Err(Exception::throw_message(ctx, "the script host is not ready"));
        };
        let function: Function<'js> = glue.restore(ctx)?.get(function)?;
        function.call((name,))
    }
}

fn set_meta(meta: &Object<'_>, name: &str) -> Result<()> {
    let url = match url::Url::from_file_path(name) {
        Ok(url) => String::from(url),
        Err(()) => name.to_owned(),
    };
    meta.set("url", url)?;
    if let Some((directory, _)) = name.rsplit_once('/') {
        meta.set("filename", name)?;
        meta.set("dirname", if directory.is_empty() { "/" } else { directory })?;
    }
    Ok(())
}

/// A module whose exports are the members of `exports`, as Node makes them for CommonJS.
fn synthetic<'js>(ctx: &Ctx<'js>, name: &str, exports: Value<'js>) -> Result<Module<'js, Declared>> {
    let mut code = String::from("const m = import.meta.exports;\n");
    let mut default = "m";
    if let Some(object) = exports.as_object() {
        let transpiled = object.get::<_, Value<'js>>("__esModule")?.as_bool() == Some(true);
        // Through engine strings, whose conversion refuses lone surrogates.
        for (index, key) in object.keys::<JsString<'js>>().enumerate() {
            let Ok(key) = key.and_then(|key| key.to_string()) else {
                continue;
            };
            if key == "default" {
                if transpiled {
                    default = "m.default";
                }
            } else if is_export_name(&key) {
                code.push_str(&format!(
                    "const v{index} = m[\"{key}\"]; export {{ v{index} as {key} }};\n"
                ));
            }
        }
    }
    code.push_str(&format!("export default {default};\n"));
    let module = Module::declare(ctx.clone(), name, code)?;
    module.meta()?.set("exports", exports)?;
    Ok(module)
}

fn is_export_name(key: &str) -> bool {
    let mut chars = key.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
}
