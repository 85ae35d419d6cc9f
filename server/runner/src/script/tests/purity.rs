//! Compute callbacks cannot reach files, processes, network, timers or environment: in the pure runtime, and behind the gate of
//! the full runtime when a module needs an effect at its top level. Both ways pass the same tests.

use serde_json::json;

use super::*;
use crate::script::CallErrorKind;

/// Makes every module need the full runtime.
const TOP_LEVEL_EFFECT: &str = "import { existsSync as probe } from 'node:fs'; export const there = probe('/');";

const IMPORTS: &str = "import * as fs from 'node:fs'; import fsp from 'fs/promises'; import { execSync, spawn } from 'node:child_process'; import os from 'node:os'; import { setTimeout as sleep } from 'node:timers/promises'; import path from 'node:path'; import { createRequire } from 'node:module'; import { helper } from './helper.ts';";

/// Bodies, and what their error must name.
const ATTEMPTS: &[(&str, &str)] = &[
    ("return fs.readFileSync('/etc/passwd', 'utf8')", "node:fs.readFileSync"),
    ("return await fsp.readFile('/etc/passwd')", "node:fs/promises.readFile"),
    (
        "return await fs.promises.readFile('/etc/passwd')",
        "node:fs/promises.readFile",
    ),
    ("fs.writeFileSync('out.txt', 'x')", "node:fs.writeFileSync"),
    ("return execSync('true').toString()", "node:child_process.execSync"),
    ("spawn('touch', ['out.txt']); return 1", "node:child_process.spawn"),
    ("return os.hostname()", "node:os.hostname"),
    ("return process.env.PATH", "process.env.PATH"),
    ("return Object.keys(process.env)", "process.env"),
    ("return { ...process.env }", "process.env"),
    ("return process.cwd()", "process.cwd"),
    ("return path.resolve('x')", "process.cwd"),
    ("return process.pid", "process.pid"),
    ("process.kill(1, 0)", "process.kill"),
    ("return await fetch('http://127.0.0.1:1/')", "fetch"),
    ("await new Promise((done) => setTimeout(done, 1))", "setTimeout"),
    ("await sleep(1)", "node:timers/promises.setTimeout"),
    ("setInterval(() => {}, 1); return 1", "setInterval"),
    ("setImmediate(() => {}); return 1", "setImmediate"),
    (
        "return (await import('/etc/hostname.json')).default",
        "import(\"/etc/hostname.json\")",
    ),
    (
        "return (await import('./secret.json')).default",
        "import(\"./secret.json\")",
    ),
    ("return (await import('./other.ts')).default", "import(\"./other.ts\")"),
    (
        "const { readFileSync } = await import('node:fs'); return readFileSync('/etc/passwd')",
        "node:fs.readFileSync",
    ),
    (
        "return createRequire(import.meta.url)('./secret.json')",
        "require(\"./secret.json\")",
    ),
    (
        "return createRequire(import.meta.url)('fs').readFileSync('/etc/passwd')",
        "node:fs.readFileSync",
    ),
    ("return new Function('return process.env.HOME')()", "process.env.HOME"),
    ("return (0, eval)('process.env.HOME')", "process.env.HOME"),
    (
        "return (async () => {}).constructor(\"return (await import('node:fs')).readFileSync('/etc/passwd')\")()",
        "node:fs.readFileSync",
    ),
    (
        "return fs.readFileSync.call(null, '/etc/passwd')",
        "node:fs.readFileSync",
    ),
    (
        "return Reflect.apply(fs.readFileSync, fs, ['/etc/passwd'])",
        "node:fs.readFileSync",
    ),
    ("return fs.readFileSync.bind(fs)('/etc/passwd')", "node:fs.readFileSync"),
    (
        "try { fs.readFileSync('/etc/passwd') } catch {} return 'fine'",
        "node:fs.readFileSync",
    ),
    (
        "fsp.readFile('/etc/passwd').catch(() => {}); return 'fine'",
        "node:fs/promises.readFile",
    ),
    (
        "await Promise.resolve(); await Promise.resolve(); return fs.existsSync('/')",
        "node:fs.existsSync",
    ),
    (
        "Promise.resolve().then(() => fs.writeFileSync('out.txt', 'late')); return 'fine'",
        "node:fs.writeFileSync",
    ),
    ("return helper()", "node:fs.readFileSync"),
    ("return runCommandBatch({ commands: [['true']] })", "runCommandBatch"),
    (
        "return (fs as any).createReadStream('/etc/passwd')",
        "node:fs.createReadStream",
    ),
    ("return AbortSignal.timeout(5)", "setTimeout"),
    ("return fs.realpathSync.native('/')", "node:fs.realpathSync"),
];

fn project(top_level_effect: bool) -> (Project, String) {
    let project = Project::new();
    project
        .write(
            "helper.ts",
            "import { readFileSync } from 'node:fs';\nexport const helper = () => readFileSync('/etc/passwd', 'utf8');",
        )
        .write("secret.json", "{\"secret\": 1}")
        .write("other.ts", "export default 1;");
    let mut imports = IMPORTS.to_owned();
    if top_level_effect {
        imports.push_str(TOP_LEVEL_EFFECT);
    }
    (project, imports)
}

async fn attempts(top_level_effect: bool) {
    let (project, imports) = project(top_level_effect);
    for (body, what) in ATTEMPTS {
        let error = match project.compute(&imports, body).await {
            Err(error) => error,
            Ok(value) => panic!("{body} gave {value}"),
        };
        assert_eq!(
            error.kind,
            CallErrorKind::Impure {
                what: (*what).to_owned()
            },
            "{body}: {error:?}"
        );
        assert!(
            error
                .message
                .starts_with(&format!("compute node \"a\" touched {what}: ")),
            "{body}: {}",
            error.message
        );
    }
    assert!(!project.path("out.txt").exists());
}

#[tokio::test]
async fn the_pure_runtime_refuses_every_effect() {
    attempts(false).await;
}

#[tokio::test]
async fn the_gate_refuses_every_effect() {
    attempts(true).await;
}

/// Reaching for engine or host objects finds none.
#[tokio::test]
async fn no_host_object_is_reachable() {
    for top_level_effect in [false, true] {
        let (project, imports) = project(top_level_effect);
        let body = "
            const names = Reflect.ownKeys(globalThis).map(String);
            const suspicious = names.filter((name) => /host|piw|quick|glue|native|require|__/i.test(name));
            return { suspicious, deno: typeof (globalThis as any).Deno, std: typeof (globalThis as any).std, os: typeof (globalThis as any).os };";
        let found = project.compute(&imports, body).await.unwrap();
        assert_eq!(
            found,
            json!({"suspicious": [], "deno": "undefined", "std": "undefined", "os": "undefined"})
        );
    }
}

#[tokio::test]
async fn tampering_with_built_in_prototypes_opens_nothing() {
    for top_level_effect in [false, true] {
        let (project, imports) = project(top_level_effect);
        let body = "
            const seen: any[] = [];
            for (const [proto, name] of [[Function.prototype, 'call'], [Function.prototype, 'apply'], [Array.prototype, 'push'], [Map.prototype, 'get'], [Object.prototype, 'toString'], [Promise.prototype, 'then']] as any[]) {
                const original = proto[name];
                proto[name] = function (...args: any[]) { seen.length < 50 && (seen[seen.length] = [this, args]); return original.apply?.(this, args) ?? Reflect.apply(original, this, args); };
            }
            let got = 'nothing';
            for (const entry of seen) for (const value of [entry[0], ...entry[1]]) {
                if (value && typeof value === 'object' && typeof value.fsRead === 'function') got = value.fsRead('/etc/passwd');
            }
            try { got = String(fs.readFileSync('/etc/passwd')); } catch {}
            return got;";
        let error = project.compute(&imports, body).await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::Impure { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn what_is_pure_works() {
    for top_level_effect in [false, true] {
        let (project, imports) = project(top_level_effect);
        let imports = format!(
            "{imports} import crypto from 'node:crypto'; import util from 'node:util'; import assert from 'node:assert'; import {{ EventEmitter }} from 'node:events';"
        );
        let body = "
            assert.equal(path.join('a', '..', 'b'), 'b');
            const emitter = new EventEmitter(); let heard = 0; emitter.on('x', (n: number) => { heard += n }); emitter.emit('x', 2);
            const { basename } = await import('node:path');
            console.log('from compute');
            await null;
            return { hash: crypto.createHash('sha256').update('a').digest('hex').slice(0, 8), text: util.format('%s=%d', 'a', 1), heard, name: basename('/x/y.ts'), url: new URL('../b', 'http://h/a/c').href, now: Date.now() > 0, platform: typeof process.platform, clone: structuredClone({ a: [1] }) };";
        let output = project.compute(&imports, body).await.unwrap();
        assert_eq!(
            output,
            json!({"hash": "ca978112", "text": "a=1", "heard": 2, "name": "y.ts", "url": "http://h/b", "now": true, "platform": "string", "clone": {"a": [1]}})
        );
        assert!(contains(&project.printed(), "from compute"));
    }
}

/// What a compute callback leaves behind cannot have an effect later, when an action runs in the same runtime.
#[tokio::test]
async fn leftovers_of_compute_never_run_with_effects() {
    let project = Project::new();
    let text = format!(
        "import {{ defineWorkflow, compute, action, manualEffect }} from 'piw'; import fs from 'node:fs'; {TOP_LEVEL_EFFECT}
export default defineWorkflow({{ name: 'w', startAt: 'c', edges: [{{ from: 'c', to: 'a' }}], nodes: {{
  c: compute({{ run: () => {{ const spin = (n: number): any => Promise.resolve().then(() => (n > 0 ? spin(n - 1) : fs.writeFileSync('late.txt', 'x'))); spin(5000); return 1; }} }}),
  a: action({{ effect: manualEffect('t'), run: async () => {{ await new Promise((done) => setTimeout(done, 20)); return fs.existsSync('late.txt'); }} }}) }} }});"
    );
    let (host, _) = project.load("l.workflow.ts", &text).await.unwrap();
    host.open_scope("", &Value::Null);
    let _ = host.call(run("c"), args(true)).await;
    assert_eq!(host.call(run("a"), args(false)).await.unwrap(), json!(false));
    assert!(!project.path("late.txt").exists());
}
