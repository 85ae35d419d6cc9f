//! Imports, packages, includes and what is reported of them.

use piw_protocol::run::SourceRef;
use serde_json::json;

use super::*;
use crate::script::{LoadErrorKind, WorkflowLookup};

const WORKFLOW: &str = "import { defineWorkflow, compute } from 'piw';\nexport default defineWorkflow({ name: 'w', startAt: 'a', edges: [], nodes: { a: compute({ run: () => value }) } });\n";

async fn value_of(project: &Project, imports: &str) -> Value {
    let (host, _) = project
        .load("m.workflow.ts", &format!("{imports}\n{WORKFLOW}"))
        .await
        .unwrap();
    host.call(run("a"), args(true)).await.unwrap()
}

#[tokio::test]
async fn relative_modules_and_json_load_and_are_reported() {
    let project = Project::new();
    project
        .write(
            "lib/a.ts",
            "import { b } from './b.js';\nexport const a = b + 1;\nexport type T = string;",
        )
        .write(
            "lib/b.ts",
            "import data from './data.json' with { type: 'json' };\nexport const b: number = data.n;",
        )
        .write("lib/data.json", "{\"n\": 41}")
        .write(
            "plain.mjs",
            "export default import.meta.filename.endsWith('plain.mjs') && import.meta.url.startsWith('file:///');",
        );
    let text = format!(
        "import {{ a }} from './lib/a';\nimport type {{ T }} from './nowhere';\nimport ok from './plain.mjs';\nconst value = {{ a, ok }};\n{WORKFLOW}"
    );
    let (host, loaded) = project.load("m.workflow.ts", &text).await.unwrap();
    assert_eq!(
        host.call(run("a"), args(true)).await.unwrap(),
        json!({"a": 42, "ok": true})
    );
    let names: Vec<&str> = loaded
        .modules
        .iter()
        .map(|module| match module {
            SourceRef::File { path, .. } => file_name(Path::new(path)),
            SourceRef::Builtin { id, .. } => id,
        })
        .collect();
    assert_eq!(names[0], "m.workflow.ts");
    assert_eq!(names.len(), 5);
    assert!(
        ["a.ts", "b.ts", "data.json", "plain.mjs"]
            .iter()
            .all(|name| names.contains(name)),
        "{names:?}"
    );
    assert!(
        matches!(&loaded.raw.source, SourceRef::File { hash, .. } if *hash == piw_protocol::canonical::sha256_hex(text.as_bytes()))
    );
}

#[tokio::test]
async fn packages_of_both_kinds_resolve() {
    let project = Project::new();
    project
        .write("node_modules/esm/package.json", r#"{"name":"esm","type":"module","exports":{".":{"import":"./i.js","require":"./r.cjs"},"./sub":"./sub.js"}}"#)
        .write("node_modules/esm/i.js", "export default 'import';\nexport const named = 1;")
        .write("node_modules/esm/r.cjs", "module.exports = 'require';")
        .write("node_modules/esm/sub.js", "export const sub = 'sub';")
        .write("node_modules/cjs/package.json", r#"{"name":"cjs","main":"lib"}"#)
        .write("node_modules/cjs/lib/index.js", "const esm = require('esm'); const other = require('./other'); exports.seen = esm; exports.other = other.name; exports.dir = __dirname.endsWith('lib'); with_ = 1; exports.sloppy = typeof with_; exports.self = require('./other').again === other.again; exports.path = require('path').join('a', 'b');")
        .write("node_modules/cjs/lib/other.js", "#!/usr/bin/env node\nexports.name = 'other'; exports.again = require('./index').seen; exports.json = require('./d.json').x;")
        .write("node_modules/cjs/lib/d.json", "{\"x\":1}")
        .write("node_modules/fn/package.json", r#"{"name":"fn"}"#)
        .write("node_modules/fn/index.js", "module.exports = function hello() { return 'called' }; module.exports.extra = 2;")
        .write("node_modules/transpiled/package.json", r#"{"name":"transpiled"}"#)
        .write("node_modules/transpiled/index.js", "Object.defineProperty(exports, '__esModule', { value: true }); exports.default = 'the default'; exports.named = 'the name';");
    let imports = "import esm, { named } from 'esm'; import { sub } from 'esm/sub'; import cjs, { seen, other, dir, sloppy, self, path } from 'cjs'; import fn, { extra } from 'fn'; import t, { named as tn } from 'transpiled';\nconst value = { esm, named, sub, seen, other, dir, sloppy, self, path, same: cjs.seen === seen, fn: fn(), extra, t, tn };";
    assert_eq!(
        value_of(&project, imports).await,
        json!({"esm": "import", "named": 1, "sub": "sub", "seen": "require", "other": "other", "dir": true, "sloppy": "number", "self": true, "path": "a/b", "same": true, "fn": "called", "extra": 2, "t": "the default", "tn": "the name"})
    );
}

#[tokio::test]
async fn failed_imports_show_the_chain() {
    let project = Project::new();
    project
        .write("one.ts", "import './two.ts';")
        .write("two.ts", "import 'deep-package';")
        .write("node_modules/deep-package/package.json", r#"{"name":"deep-package"}"#)
        .write("node_modules/deep-package/index.js", "require('worker_threads');")
        .write(
            "node_modules/addon/package.json",
            r#"{"name":"addon","main":"build/addon.node"}"#,
        )
        .write("node_modules/addon/build/addon.node", "\u{7f}ELF")
        .write(
            "node_modules/broken/package.json",
            r#"{"name":"broken","exports":{"./x":"./x.js"}}"#,
        );
    let error = project
        .load("m.workflow.ts", "import './one.ts';")
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind, LoadErrorKind::Import, "{error}");
    for part in [
        "node:worker_threads",
        "m.workflow.ts → ",
        "one.ts → ",
        "two.ts → ",
        "deep-package/index.js → node:worker_threads",
        "available are assert",
    ] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    let error = project
        .load("m.workflow.ts", "import 'addon';")
        .await
        .map(|_| ())
        .unwrap_err();
    assert!(error.message.contains("native addons are not supported"), "{error}");
    let error = project
        .load("m.workflow.ts", "import 'broken';")
        .await
        .map(|_| ())
        .unwrap_err();
    assert!(error.message.contains("is not exported"), "{error}");
}

/// The reason why the module that imports `imports` does not load.
async fn refusal(project: &Project, imports: &str) -> String {
    let loaded = project.load("m.workflow.ts", imports).await;
    loaded.map(|_| ()).unwrap_err().message
}

#[tokio::test]
async fn what_is_no_regular_file_is_no_module() {
    let project = Project::new();
    for name in ["pipe.ts", "other.mjs"] {
        nix::unistd::mkfifo(&project.path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    project.write("empty/readme.md", "");
    let absolute = format!("import '{}';", project.path("other.mjs").display());
    for (imports, why) in [
        ("import './pipe.ts';", "it is a named pipe, no regular file"),
        (absolute.as_str(), "it is a named pipe, no regular file"),
        ("import '/dev/zero';", "it is a device, no regular file"),
        ("import './empty';", "it is a directory without an index file"),
        ("import './none.ts';", "no such file"),
    ] {
        let message = refusal(&project, imports).await;
        assert!(message.ends_with(why), "{imports}: {message}");
        assert!(!message.contains("import chain"), "{imports}: {message}");
    }
}

#[tokio::test]
async fn the_entry_has_no_importer() {
    let project = Project::new();
    let path = project.path("bin.workflow.ts");
    let entry = Entry::File {
        path: path.clone(),
        bytes: b"const a = '\xff';"[..].into(),
    };
    let error = project.host().load(entry).await.map(|_| ()).unwrap_err();
    let expected = format!(
        "cannot load {}: it is not UTF-8 text: invalid byte at offset 11",
        path.display()
    );
    assert_eq!(error.message, expected);
    project.write("one.ts", "import './two.ts';");
    let message = refusal(&project, "import './one.ts';").await;
    let chain = format!("import chain: {} → ", project.path("m.workflow.ts").display());
    assert!(message.contains(&chain), "{message}");
}

#[tokio::test]
async fn given_bytes_win_over_the_disk() {
    let mut project = Project::new();
    project.write("lib.ts", "export const value = 'from disk';");
    project
        .options
        .verified
        .insert(project.path("lib.ts"), b"export const value = 'verified';"[..].into());
    assert_eq!(
        value_of(&project, "import { value } from './lib.ts';").await,
        json!("verified")
    );
    project.write("e.workflow.ts", "throw new Error('from disk')");
    let host = project.host();
    let entry = Entry::File {
        path: project.path("e.workflow.ts"),
        bytes: format!("const value = 1;\n{WORKFLOW}").into_bytes().into(),
    };
    assert_eq!(host.load(entry).await.unwrap().raw.name, "w");
}

const CHILD: &str = "import { defineWorkflow, compute } from 'piw';
export default defineWorkflow({ name: 'child', source: import.meta.url, startAt: 'do', input: (v: any) => ({ n: v.n }), edges: [],
  nodes: { do: compute({ run: ({ input }: any) => ({ doubled: input.n * 2 }) }) },
  exits: { done: { node: 'do', validate: (output: any) => { if (output.doubled > 10) throw new Error('too big'); return output } } } });";

fn parent(include: &str, imports: &str) -> String {
    format!(
        "import {{ defineWorkflow, compute, includeWorkflow, includedResult }} from 'piw';\n{imports}\nexport default defineWorkflow({{ name: 'parent', startAt: 'sub', includes: {{ sub: {include} }}, nodes: {{ after: compute({{ run: (ctx: any) => includedResult(ctx, 'sub') }}) }}, edges: [{{ from: 'sub.done', to: 'after' }}] }});"
    )
}

#[tokio::test]
async fn includes_mount_imported_and_named_workflows() {
    struct Names(Entry);
    impl WorkflowLookup for Names {
        fn find(&self, reference: &str, _from: &SourceRef) -> Result<Entry, String> {
            if reference == "by-name" || reference == "builtin:child" {
                Ok(self.0.clone())
            } else {
                Err("no workflow is called that".to_owned())
            }
        }
    }
    let mut project = Project::new();
    project.write("child.workflow.ts", CHILD);
    project.options.workflows = Arc::new(Names(builtin("child", CHILD)));
    for (include, imports) in [
        (
            "includeWorkflow(child, { input: ({ input }: any) => ({ n: input.start + 1 }) })",
            "import child from './child.workflow.ts';",
        ),
        (
            "includeWorkflow({ workflow: './child.workflow.ts' }, { input: ({ input }: any) => ({ n: input.start + 1 }) })",
            "",
        ),
        (
            "includeWorkflow({ workflow: 'by-name', input: ({ input }: any) => ({ n: input.start + 1 }) } as any)",
            "",
        ),
        (
            "includeWorkflow({ workflow: 'builtin:child' }, { input: ({ input }: any) => ({ n: input.start + 1 }) })",
            "",
        ),
    ] {
        let (host, loaded) = project.load("p.workflow.ts", &parent(include, imports)).await.unwrap();
        let mounted = &loaded.raw.includes[0];
        assert_eq!(
            (
                mounted.mount.as_str(),
                mounted.definition.name.as_str(),
                mounted.has_input
            ),
            ("sub", "child", true)
        );
        assert_ne!(mounted.definition.source, loaded.raw.source, "{include}");
        assert!(mounted.definition.exits[0].has_validate && mounted.definition.has_input);
        host.open_scope("", &json!({"start": 2}));
        for pure in [false, true] {
            let input = host
                .call(callback("", Some("sub"), CallbackField::IncludeInput), args(pure))
                .await
                .unwrap();
            assert_eq!(input, json!({"n": 3}));
            host.open_scope("sub", &input);
            let output = host
                .call(callback("sub", Some("do"), CallbackField::Run), args(pure))
                .await
                .unwrap();
            assert_eq!(output, json!({"doubled": 6}));
        }
        let validate = |value| CallArgs {
            argument: Some(value),
            ..args(false)
        };
        let refused = host
            .call(
                callback("sub", Some("done"), CallbackField::ExitValidate),
                validate(json!({"doubled": 12})),
            )
            .await;
        assert_eq!(refused.unwrap_err().message, "too big");
        let result = crate::script::NodeResult {
            exit: Some("done".into()),
            ..crate::script::NodeResult::ok(json!({"doubled": 6}))
        };
        host.record("", "sub", &result);
        assert_eq!(
            host.call(run("after"), args(true)).await.unwrap(),
            json!({"exit": "done", "output": {"doubled": 6}})
        );
    }
    let error = project
        .load("p.workflow.ts", &parent("includeWorkflow({ workflow: 'nope' })", ""))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind, LoadErrorKind::Include);
    assert!(
        error.message.contains("cannot include \"nope\" in ") && error.message.contains("no workflow is called that"),
        "{error}"
    );
}

#[tokio::test]
async fn an_included_path_must_be_a_regular_file() {
    let project = Project::new();
    let pipe = project.path("pipe.workflow.ts");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = parent("includeWorkflow({ workflow: './pipe.workflow.ts' })", "");
    let error = project.load("p.workflow.ts", &text).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind, LoadErrorKind::Include, "{error}");
    let why = format!("{}: it is a named pipe, no regular file", pipe.display());
    assert!(error.message.contains(&why), "{error}");
}

#[tokio::test]
async fn include_cycles_are_refused_with_the_chain() {
    let project = Project::new();
    project.write(
        "b.workflow.ts",
        &parent("includeWorkflow({ workflow: './p.workflow.ts' })", "").replace("'parent'", "'other'"),
    );
    let error = project
        .load(
            "p.workflow.ts",
            &parent("includeWorkflow({ workflow: './b.workflow.ts' })", ""),
        )
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind, LoadErrorKind::Include, "{error}");
    assert!(
        error
            .message
            .contains("a workflow includes itself: parent (mounts \"sub\") → other (mounts \"sub\") → parent"),
        "{error}"
    );
}

#[tokio::test]
async fn builtin_workflows_import_each_other() {
    struct Shipped;
    impl WorkflowLookup for Shipped {
        fn find(&self, reference: &str, _from: &SourceRef) -> Result<Entry, String> {
            if reference == "builtin:child" {
                Ok(builtin("child", CHILD))
            } else {
                Err("unknown".to_owned())
            }
        }
    }
    let mut project = Project::new();
    project.options.workflows = Arc::new(Shipped);
    let host = project.host();
    let text = parent("includeWorkflow(child)", "import child from './child.workflow.ts';");
    let loaded = host.load(builtin("top", &text)).await.unwrap();
    assert!(matches!(&loaded.raw.includes[0].definition.source, SourceRef::Builtin { id, .. } if id == "child"));
    assert_eq!(loaded.modules.len(), 2);
}
