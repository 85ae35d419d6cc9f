//! Native functions without effects on the outside: console, text and hash primitives, module plumbing.

use std::rc::Rc;
use std::time::Instant;

use base64::Engine as _;
use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Exception, Function, Object, Result, TypedArray, Value};
use sha2::{Digest, Sha256, Sha384, Sha512};

use crate::regular::in_bytes;
use crate::script::api::ConsoleLevel;
use crate::script::builtins;
use crate::script::loader::throw_import;
use crate::script::modules::Kind;
use crate::script::shared::{Shared, Stop};

pub(super) fn install<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    host.set("pure", shared.pure)?;
    host.set(
        "platform",
        if cfg!(target_os = "macos") {
            "darwin"
        } else {
            std::env::consts::OS
        },
    )?;
    host.set("arch", node_arch())?;
    host.set("includeDepth", piw_engine::limits::INCLUDE_DEPTH)?;
    host.set("version", env!("CARGO_PKG_VERSION"))?;
    gate(ctx, host, shared)?;
    modules(ctx, host, shared)?;
    journal(ctx, host, shared)?;
    text(ctx, host)?;
    bytes(ctx, host)?;
    urls(ctx, host)
}

fn node_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn gate<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    let at = Rc::clone(shared);
    host.set(
        "closed",
        Function::new(ctx.clone(), move || at.pure || at.gate.borrow().is_some())?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "touch",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, what: String| -> Result<()> {
            Err(at.touch(&ctx, &what))
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "log",
        Function::new(ctx.clone(), move |level: u8, text: String| {
            let level = match level {
                0 => ConsoleLevel::Debug,
                1 => ConsoleLevel::Info,
                2 => ConsoleLevel::Warn,
                _ => ConsoleLevel::Error,
            };
            at.console.write(level, &text);
        })?,
    )?;
    let started = shared.started;
    host.set(
        "now",
        Function::new(ctx.clone(), move || {
            Instant::now().duration_since(started).as_secs_f64() * 1000.0
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "exit",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, code: i32| -> Result<()> {
            if at.stopped.get().is_none() {
                at.stopped.set(Some(Stop::Exit(code)));
            }
            Err(Exception::throw_message(
                &ctx,
                &format!("process.exit({code}) was called"),
            ))
        })?,
    )
}

fn modules<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    host.set(
        "internalSource",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: String| -> Result<Value<'js>> {
            let Some(source) = builtins::source(&name) else {
                return Err(Exception::throw_message(
                    &ctx,
                    &format!("no provided module is called {name}"),
                ));
            };
            let wrapped = format!("(function (exports, module, require, host) {{{source}\n}})");
            let label = if name.starts_with("node:") {
                name
            } else {
                name.replace("piw:", "piw:internal/")
            };
            eval(&ctx, &wrapped, &label, true)
        })?,
    )?;
    host.set(
        "internalName",
        Function::new(ctx.clone(), |specifier: String| builtins::internal_name(&specifier))?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "resolve",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, base: String, specifier: String| -> Result<String> {
                if builtins::internal_name(&specifier).is_none()
                    && (!at.loader_open.get() || at.gate.borrow().is_some())
                {
                    return Err(at.touch(&ctx, &format!("require(\"{specifier}\")")));
                }
                at.modules
                    .resolve(&base, &specifier, true)
                    .map_err(|error| throw_import(&ctx, &error))
            },
        )?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "kind",
        Function::new(
            ctx.clone(),
            move |ctx: Ctx<'js>, name: String| -> Result<&'static str> {
                let source = at.modules.source(&name).map_err(|error| throw_import(&ctx, &error))?;
                Ok(match source.kind {
                    Kind::Esm => "module",
                    Kind::CommonJs => "commonjs",
                    Kind::Json => "json",
                })
            },
        )?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "compile",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, name: String| -> Result<Value<'js>> {
            let source = at.modules.source(&name).map_err(|error| throw_import(&ctx, &error))?;
            if source.kind == Kind::Json {
                return ctx.json_parse(source.code.as_str());
            }
            let body = source.code.strip_prefix("#!").map_or(source.code.as_str(), |rest| {
                rest.find('\n').map_or("", |end| &rest[end..])
            });
            let wrapped = format!("(function (exports, require, module, __filename, __dirname) {{{body}\n}})");
            eval(&ctx, &wrapped, &name, false)
        })?,
    )?;
    host.set("caller", Function::new(ctx.clone(), |ctx: Ctx<'js>| caller(&ctx))?)?;
    let at = Rc::clone(shared);
    host.set(
        "sourceRef",
        Function::new(ctx.clone(), move |name: String| {
            at.modules
                .source_ref(&name)
                .and_then(|source| serde_json::to_string(&source).ok())
        })?,
    )
}

fn journal<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Rc<Shared>) -> Result<()> {
    let at = Rc::clone(shared);
    host.set(
        "scopeInput",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, scope: String| {
            ctx.json_parse(at.journal.borrow().input(&scope))
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "scopeIds",
        Function::new(ctx.clone(), move |scope: String, only_ok: bool| {
            at.journal.borrow().ids(&scope, only_ok)
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "scopeHas",
        Function::new(ctx.clone(), move |scope: String, id: String, only_ok: bool| {
            at.journal
                .borrow()
                .latest(&scope, &id)
                .is_some_and(|record| record.ok || !only_ok)
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "scopeOutput",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, scope: String, id: String| {
            ctx.json_parse(
                at.journal
                    .borrow()
                    .latest(&scope, &id)
                    .map_or("null", |record| record.output.as_str()),
            )
        })?,
    )?;
    let at = Rc::clone(shared);
    host.set(
        "scopeMeta",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, scope: String, id: String| {
            ctx.json_parse(
                at.journal
                    .borrow()
                    .latest(&scope, &id)
                    .map_or("{}", |record| record.meta.as_str()),
            )
        })?,
    )
}

fn eval<'js>(ctx: &Ctx<'js>, code: &str, name: &str, strict: bool) -> Result<Value<'js>> {
    let mut options = EvalOptions::default();
    options.global = true;
    options.strict = strict;
    options.filename = Some(name.to_owned());
    ctx.eval_with_options(code, options)
}

/// The innermost module on the stack that is not the host's own.
fn caller(ctx: &Ctx<'_>) -> Option<String> {
    for level in 0..24 {
        let Some(atom) = ctx.script_or_module_name(level) else {
            continue;
        };
        let Ok(name) = atom.to_string() else { continue };
        if name.starts_with('/') || name.starts_with("builtin:") {
            return Some(name);
        }
    }
    None
}

fn text<'js>(ctx: &Ctx<'js>, host: &Object<'js>) -> Result<()> {
    host.set(
        "utf8Encode",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, text: String| {
            TypedArray::<u8>::new_copy(ctx, text.as_bytes())
        })?,
    )?;
    host.set(
        "utf8Decode",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, bytes: TypedArray<'js, u8>, fatal: bool| -> Result<String> {
                let bytes = view(&ctx, &bytes)?;
                if fatal {
                    return String::from_utf8(bytes.to_vec())
                        .map_err(|_| Exception::throw_type(&ctx, "The encoded data was not valid for encoding utf-8"));
                }
                Ok(String::from_utf8_lossy(bytes).into_owned())
            },
        )?,
    )?;
    host.set(
        "base64Encode",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, bytes: TypedArray<'js, u8>, url: bool| -> Result<String> {
                let bytes = view(&ctx, &bytes)?;
                Ok(if url {
                    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
                } else {
                    base64::engine::general_purpose::STANDARD.encode(bytes)
                })
            },
        )?,
    )?;
    host.set(
        "base64Decode",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, text: String| -> Result<Option<TypedArray<'js, u8>>> {
                // Both alphabets, padding optional, blanks ignored: as Node reads it.
                let clean: String = text
                    .chars()
                    .filter(|c| !c.is_ascii_whitespace() && *c != '=')
                    .map(|c| match c {
                        '-' => '+',
                        '_' => '/',
                        other => other,
                    })
                    .collect();
                let clean = if clean.len() % 4 == 1 {
                    &clean[..clean.len() - 1]
                } else {
                    &clean
                };
                let config = base64::engine::GeneralPurposeConfig::new()
                    .with_decode_allow_trailing_bits(true)
                    .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);
                let engine = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, config);
                match engine.decode(clean) {
                    Ok(bytes) => TypedArray::new_copy(ctx, bytes).map(Some),
                    Err(_) => Ok(None),
                }
            },
        )?,
    )
}

/// The bytes a typed array shows, for as long as no JavaScript runs.
pub(super) fn view<'a>(ctx: &Ctx<'_>, bytes: &'a TypedArray<'_, u8>) -> Result<&'a [u8]> {
    super::super::bytes::of(bytes).ok_or_else(|| Exception::throw_type(ctx, "the buffer is detached"))
}

fn bytes<'js>(ctx: &Ctx<'js>, host: &Object<'js>) -> Result<()> {
    host.set(
        "hash",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, algorithm: String, bytes: TypedArray<'js, u8>| -> Result<Option<TypedArray<'js, u8>>> {
                let bytes = view(&ctx, &bytes)?;
                let digest = match algorithm.as_str() {
                    "sha256" => Sha256::digest(bytes).to_vec(),
                    "sha384" => Sha384::digest(bytes).to_vec(),
                    "sha512" => Sha512::digest(bytes).to_vec(),
                    "sha1" => super::super::bytes::sha1(bytes).to_vec(),
                    "md5" => super::super::bytes::md5(bytes).to_vec(),
                    _ => return Ok(None),
                };
                TypedArray::new_copy(ctx, digest).map(Some)
            },
        )?,
    )?;
    host.set(
        "randomBytes",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, length: usize| -> Result<TypedArray<'js, u8>> {
                const MOST: usize = 1 << 20;
                if length > MOST {
                    return Err(Exception::throw_range(
                        &ctx,
                        &format!("at most {} of random data at once, not {length}", in_bytes(MOST as u64)),
                    ));
                }
                let mut bytes = vec![0; length];
                getrandom::fill(&mut bytes).map_err(|error| Exception::throw_message(&ctx, &error.to_string()))?;
                TypedArray::new_copy(ctx, bytes)
            },
        )?,
    )?;
    host.set("uuid", Function::new(ctx.clone(), || uuid::Uuid::new_v4().to_string())?)
}

fn urls<'js>(ctx: &Ctx<'js>, host: &Object<'js>) -> Result<()> {
    host.set(
        "urlParse",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, text: String, base: Option<String>| -> Result<Option<Object<'js>>> {
                let parsed = match base {
                    Some(base) => url::Url::parse(&base).and_then(|base| base.join(&text)),
                    None => url::Url::parse(&text),
                };
                parsed.ok().map(|url| url_parts(&ctx, &url)).transpose()
            },
        )?,
    )?;
    host.set(
        "urlSet",
        Function::new(
            ctx.clone(),
            |ctx: Ctx<'js>, href: String, part: String, value: String| -> Result<Option<Object<'js>>> {
                let Ok(mut url) = url::Url::parse(&href) else {
                    return Ok(None);
                };
                // As browsers do: a part that cannot be set leaves the URL as it was.
                let none = value.is_empty();
                match part.as_str() {
                    "protocol" => {
                        let _ = url.set_scheme(value.trim_end_matches(':'));
                    }
                    "username" => {
                        let _ = url.set_username(&value);
                    }
                    "password" => {
                        let _ = url.set_password((!none).then_some(&value));
                    }
                    "hostname" => {
                        let _ = url.set_host(Some(&value));
                    }
                    "host" => {
                        let (name, port) = value.rsplit_once(':').unwrap_or((&value, ""));
                        if url.set_host(Some(name)).is_ok() && !port.is_empty() {
                            let _ = url.set_port(port.parse().ok());
                        }
                    }
                    "port" => {
                        let _ = url.set_port(if none { None } else { value.parse().ok() });
                    }
                    "pathname" => url.set_path(&value),
                    "search" => url.set_query((!none).then(|| value.trim_start_matches('?'))),
                    "hash" => url.set_fragment((!none).then(|| value.trim_start_matches('#'))),
                    _ => return Ok(None),
                }
                url_parts(&ctx, &url).map(Some)
            },
        )?,
    )
}

fn url_parts<'js>(ctx: &Ctx<'js>, url: &url::Url) -> Result<Object<'js>> {
    let parts = Object::new(ctx.clone())?;
    let hostname = url.host_str().unwrap_or("");
    let port = url.port().map(|port| port.to_string()).unwrap_or_default();
    let host = if port.is_empty() {
        hostname.to_owned()
    } else {
        format!("{hostname}:{port}")
    };
    parts.set("href", url.as_str())?;
    parts.set("protocol", format!("{}:", url.scheme()))?;
    parts.set("username", url.username())?;
    parts.set("password", url.password().unwrap_or(""))?;
    parts.set("hostname", hostname)?;
    parts.set("host", host)?;
    parts.set("port", port)?;
    parts.set("pathname", url.path())?;
    parts.set(
        "search",
        url.query()
            .filter(|query| !query.is_empty())
            .map(|query| format!("?{query}"))
            .unwrap_or_default(),
    )?;
    parts.set(
        "hash",
        url.fragment()
            .filter(|part| !part.is_empty())
            .map(|part| format!("#{part}"))
            .unwrap_or_default(),
    )?;
    let origin = url.origin();
    parts.set(
        "origin",
        if origin.is_tuple() {
            origin.ascii_serialization()
        } else {
            "null".to_owned()
        },
    )?;
    Ok(parts)
}
