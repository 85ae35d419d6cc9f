//! Deadlines, cancellation, memory, depth, floods: each ends as an error, and the host goes on.

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::script::{CallErrorKind, LoadErrorKind};

async fn kind_of(project: &Project, pure: bool, body: &str, milliseconds: u64) -> CallErrorKind {
    let kind = if pure { "compute" } else { "action" };
    let (host, _) = project.load("a.workflow.ts", &one_node(kind, "", body)).await.unwrap();
    host.open_scope("", &Value::Null);
    let error = host.call(run("a"), within(pure, milliseconds)).await.unwrap_err();
    // The host is usable afterwards.
    assert!(
        host.call(callback("", None, CallbackField::Title), args(false))
            .await
            .is_err_and(|e| e.kind == CallErrorKind::Thrown || e.kind == CallErrorKind::Missing)
    );
    error.kind
}

#[tokio::test]
async fn what_does_not_end_is_ended_at_the_deadline() {
    let project = Project::new();
    for pure in [false, true] {
        for body in [
            "for (;;) {}",
            "for (;;) { try { for (;;) {} } catch {} }",
            "const f = (): any => Promise.resolve().then(f); await f();",
            "const f = () => { Promise.resolve().then(f) }; f(); await new Promise(() => {});",
            "return /^(a+)+$/.test('a'.repeat(40) + 'b')",
            "await null; for (;;) {}",
            "return { toJSON() { for (;;) {} } }",
        ] {
            assert_eq!(
                kind_of(&project, pure, body, 200).await,
                CallErrorKind::TimedOut,
                "{body}"
            );
        }
    }
    for body in [
        "await new Promise((done) => setTimeout(done, 60_000))",
        "setTimeout(() => { for (;;) {} }, 1); await new Promise(() => {})",
        "setInterval(() => {}, 1); await new Promise(() => {})",
        "await new Promise((done) => ctx.signal.addEventListener('abort', () => { for (;;) {} }))",
        "const { execSync } = await import('node:child_process'); execSync('sleep 60')",
        "const { execFile } = await import('node:child_process'); await new Promise((done) => execFile('sleep', ['60'], done))",
    ] {
        assert_eq!(
            kind_of(&project, false, body, 200).await,
            CallErrorKind::TimedOut,
            "{body}"
        );
    }
}

#[tokio::test]
async fn the_signal_is_aborted_first_and_clean_up_may_finish() {
    let project = Project::new();
    let body = "await new Promise((done) => ctx.signal.addEventListener('abort', done)); console.log('cleaned up', ctx.signal.reason.name); return 1";
    assert_eq!(kind_of(&project, false, body, 100).await, CallErrorKind::TimedOut);
    assert!(contains(&project.printed(), "cleaned up TimeoutError"));
}

#[tokio::test]
async fn cancellation_ends_waiting_and_computing_callbacks() {
    let project = Project::new();
    for body in [
        "for (;;) {}",
        "await new Promise((done) => setTimeout(done, 60_000))",
        "await new Promise((_, fail) => ctx.signal.addEventListener('abort', () => fail(ctx.signal.reason)))",
    ] {
        let (host, _) = project
            .load("a.workflow.ts", &one_node("action", "", body))
            .await
            .unwrap();
        host.open_scope("", &Value::Null);
        let cancel = CancellationToken::new();
        let call = host.call(
            run("a"),
            CallArgs {
                cancel: cancel.clone(),
                ..CallArgs::default()
            },
        );
        let (result, ()) = tokio::join!(call, async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            cancel.cancel();
        });
        assert_eq!(result.unwrap_err().kind, CallErrorKind::Cancelled, "{body}");
    }
}

#[tokio::test]
async fn memory_is_bounded_and_the_host_survives() {
    let mut project = Project::new();
    project.options.memory_limit = 32 << 20;
    for pure in [false, true] {
        for body in [
            "const hoard: any[] = []; for (;;) hoard.push(new Array(1000).fill(1));",
            "let text = 'x'; for (;;) text += text + 'y';",
            "const hoard: any[] = []; for (;;) hoard.push(new Uint8Array(1 << 20));",
        ] {
            let kind = kind_of(&project, pure, body, 20_000).await;
            assert!(
                matches!(kind, CallErrorKind::OutOfMemory | CallErrorKind::Thrown),
                "{body}: {kind:?}"
            );
        }
    }
    for body in [
        "Buffer.alloc(1e12)",
        "new Uint8Array(1e12)",
        "new ArrayBuffer(2 ** 53 - 1)",
        "'x'.repeat(2 ** 40)",
        "new Array(-1)",
    ] {
        let error = project
            .action(
                "",
                &format!("try {{ {body} }} catch (error: any) {{ return error.name }}"),
            )
            .await;
        assert_eq!(error.unwrap(), json!("RangeError"), "{body}");
    }
    assert_eq!(
        project
            .action(
                "",
                "const f = (n: number): number => f(n + 1) + 1; try { f(0) } catch (error: any) { return error.name }"
            )
            .await
            .unwrap(),
        json!("RangeError")
    );
}

#[tokio::test]
async fn deep_json_input_and_deep_recursion_do_not_crash() {
    let project = Project::new();
    let deep = "return JSON.parse('['.repeat(200000) + ']'.repeat(200000))";
    assert!(project.compute("", deep).await.is_err());
    assert!(
        project
            .compute(
                "",
                "return new Function('return ' + '('.repeat(200000) + '1' + ')'.repeat(200000))()"
            )
            .await
            .is_err()
    );
    assert!(
        project
            .compute(
                "",
                "return new RegExp('('.repeat(200000) + ')'.repeat(200000)).test('')"
            )
            .await
            .is_err()
    );
}

#[tokio::test]
async fn process_exit_fails_the_node_not_the_host() {
    let project = Project::new();
    for pure in [false, true] {
        for body in [
            "process.exit(3)",
            "try { process.exit(3) } catch {} return 'still here'",
            "Promise.resolve().then(() => process.exit(3)); return 1",
        ] {
            assert_eq!(
                kind_of(&project, pure, body, 5_000).await,
                CallErrorKind::Exit { code: 3 },
                "{body}"
            );
        }
    }
}

#[tokio::test]
async fn console_floods_are_bounded() {
    let mut project = Project::new();
    project.options.console_limit = 10_000;
    project
        .action(
            "",
            "for (let i = 0; i < 5000; i++) console.log('line', i, 'x'.repeat(100)); return 1",
        )
        .await
        .unwrap();
    let printed = project.printed();
    assert!(printed.iter().map(String::len).sum::<usize>() < 12_000);
    assert!(
        printed
            .last()
            .unwrap()
            .contains("console output above 10000 bytes is dropped")
    );
}

#[tokio::test]
async fn a_native_loop_is_reported_by_the_watchdog() {
    let mut project = Project::new();
    project.options.grace = Duration::from_millis(20);
    project.options.watchdog = Duration::from_millis(100);
    project.options.memory_limit = 2 << 30;
    let text = one_node(
        "action",
        "",
        "const list = new Array(2e7).fill(0); for (let i = 0; i < 100; i++) list.indexOf(1); return 1",
    );
    let (host, _) = project.load("a.workflow.ts", &text).await.unwrap();
    host.open_scope("", &Value::Null);
    let error = host.call(run("a"), within(false, 50)).await.unwrap_err();
    assert!(
        matches!(error.kind, CallErrorKind::Stuck | CallErrorKind::TimedOut),
        "{error:?}"
    );
}

#[tokio::test]
async fn bad_modules_end_as_load_errors() {
    let mut project = Project::new();
    project.options.load_timeout = Duration::from_millis(300);
    project.options.memory_limit = 48 << 20;
    let deep = format!("export default {}1{};", "[".repeat(100_000), "]".repeat(100_000));
    let deep_js = format!("export default {}1;", "!".repeat(100_000));
    let cases: Vec<(&str, &str, LoadErrorKind, &str)> = vec![
        (
            "x.workflow.ts",
            "export default 5;",
            LoadErrorKind::NotAWorkflow,
            "the default export must be a workflow made by defineWorkflow(...), but it is 5",
        ),
        (
            "x.workflow.ts",
            "export const a = 1;",
            LoadErrorKind::NotAWorkflow,
            "but it does not exist",
        ),
        (
            "x.workflow.ts",
            "const a = 1;\nconst b = {;\n",
            LoadErrorKind::Syntax,
            "x.workflow.ts:2:12: ",
        ),
        (
            "x.workflow.js",
            "import a from 'piw';\nconst b = {;\n",
            LoadErrorKind::Syntax,
            "x.workflow.js:2:12: ",
        ),
        ("x.workflow.ts", &deep, LoadErrorKind::Syntax, "nested too deeply"),
        ("x.workflow.mjs", &deep_js, LoadErrorKind::Syntax, ""),
        (
            "x.workflow.ts",
            "for (;;) {}\nexport default 1;",
            LoadErrorKind::TimedOut,
            "did not finish loading within 0.3 s",
        ),
        (
            "x.workflow.ts",
            "await new Promise(() => {}); export default 1;",
            LoadErrorKind::Thrown,
            "the module never finishes loading: it waits for a promise that nothing can settle",
        ),
        (
            "x.workflow.ts",
            "await new Promise((done) => setTimeout(done, 1e6)); export default 1;",
            LoadErrorKind::TimedOut,
            "did not finish",
        ),
        (
            "x.workflow.ts",
            "process.exit(2);",
            LoadErrorKind::Thrown,
            "process.exit(2) was called while the module loaded",
        ),
        (
            "x.workflow.ts",
            "\n\nfunction f(): never { throw new Error('at load'); }\nf();",
            LoadErrorKind::Thrown,
            "at load\n    at f (",
        ),
        (
            "x.workflow.ts",
            "import 'no-such-package';",
            LoadErrorKind::Import,
            "cannot import \"no-such-package\" in ",
        ),
        (
            "x.workflow.ts",
            "import './missing.ts';",
            LoadErrorKind::Import,
            "no such file",
        ),
        (
            "x.workflow.ts",
            "import 'node:http';",
            LoadErrorKind::Import,
            "this Node.js module is not available in workflow code",
        ),
        (
            "x.workflow.ts",
            "import 'https://example.org/x.js';",
            LoadErrorKind::Import,
            "not URLs",
        ),
        (
            "x.workflow.ts",
            "import { nothing } from 'piw'; nothing();",
            LoadErrorKind::Import,
            "cannot import 'nothing' from 'piw'",
        ),
        (
            "x.workflow.ts",
            "import { defineWorkflow } from 'piw';\nexport default defineWorkflow({ name: 'w', startAt: 'a', nodes: { a: {} }, edges: [] } as any);",
            LoadErrorKind::NotAWorkflow,
            "defineWorkflow(\"w\"): nodes.a must be made by agent",
        ),
    ];
    for (name, text, kind, part) in cases {
        let error = project.load(name, text).await.map(|(_, loaded)| loaded).unwrap_err();
        assert_eq!(error.kind, kind, "{}: {error}", &text[..text.len().min(60)]);
        assert!(error.message.contains(part), "{}: {error}", &text[..text.len().min(60)]);
    }
}

#[tokio::test]
async fn a_module_that_floods_memory_does_not_load() {
    let mut project = Project::new();
    project.options.memory_limit = 16 << 20;
    let text = "const a: any[] = []; for (;;) a.push(new Array(1000).fill(0));";
    let error = project.load("x.workflow.ts", text).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind, LoadErrorKind::OutOfMemory, "{error}");
    assert!(error.message.contains("16777216 bytes (16 MiB)"), "{error}");
}

/// Just below the limit nothing overflows the native stack; the engine may refuse, in words.
#[tokio::test]
async fn nesting_below_the_limit_never_aborts() {
    let n = 4_800;
    for value in [
        format!("{}1{}", "(".repeat(n), ")".repeat(n)),
        format!("{}1{}", "[".repeat(n), "]".repeat(n)),
        format!("{}1", "!".repeat(n)),
        format!("{}1", "1+".repeat(n)),
        format!("{}1", "a => ".repeat(n / 2)),
        format!("{}1", "true ? 1 : ".repeat(n / 2)),
        format!("(x: any) => x{}", ".b".repeat(n)),
        format!("(x: any) => x{}", "()".repeat(n)),
        format!("(x: any) => {{ {}; }}", "if (x) x(); else ".repeat(n / 3) + "x()"),
        format!("{}{}", "{ a: ".repeat(n), "1".to_owned() + &"}".repeat(n)),
        format!("(x: {}string{}) => x", "A<".repeat(n / 2), ">".repeat(n / 2)),
        format!("{}1{}", "`${".repeat(n), "}`".repeat(n)),
    ] {
        let project = Project::new();
        let text = format!("const deep = {value};\n{}", one_node("compute", "", "return 7"));
        match project.load("x.workflow.ts", &text).await {
            Ok((host, _)) => assert_eq!(host.call(run("a"), args(true)).await.unwrap(), json!(7)),
            Err(error) => assert_ne!(error.kind, LoadErrorKind::Stuck, "{}: {error}", &value[..20]),
        }
    }
}

#[tokio::test]
async fn positions_in_stacks_are_those_of_the_typescript() {
    let project = Project::new();
    let text = "import { defineWorkflow, compute } from 'piw';\ninterface A {\n  a: string;\n}\ntype B = A | null;\n\nfunction inner(value: B): string {\n  return value!.a.toUpperCase();\n}\nexport default defineWorkflow({\n  name: 'w', startAt: 'a', edges: [],\n  nodes: { a: compute({ run: async () => {\n    await null;\n    return inner(null as B);\n  } }) },\n});\n";
    let (host, _) = project.load("p.workflow.ts", text).await.unwrap();
    let error = host.call(run("a"), args(true)).await.unwrap_err();
    let stack = error.stack.unwrap();
    let lines: Vec<&str> = stack.lines().collect();
    assert!(
        lines[0].contains("at inner (") && lines[0].contains("p.workflow.ts:8:"),
        "{stack}"
    );
    assert!(lines[1].contains("p.workflow.ts:14:"), "{stack}");
    assert!(!stack.contains("piw:"), "{stack}");
}

/// However memory runs out, also when nothing is left for an error object, the failure says so.
#[tokio::test]
async fn every_flood_is_called_out_of_memory() {
    let mut project = Project::new();
    project.options.memory_limit = 8 << 20;
    let bodies = [
        "const a: any[] = []; for (;;) a.push({ a: 1 });",
        "let a: any = null; for (;;) a = [a];",
        "let a: any = null; for (;;) { const b = a; a = () => b; }",
        "const a: any = {}; for (let i = 0; ; i++) a['k' + i] = i;",
        "const a = new Map(); for (let i = 0; ; i++) a.set(i, { i });",
        "const a: any[] = []; for (;;) a.push(Promise.resolve());",
        "const a: any[] = []; for (;;) { a.push({}); await null; }",
        "const a: any[] = []; for (;;) { try { a.push({}); } catch (e) { a.push({}, {}, {}); throw e; } }",
        "const a: any[] = []; for (;;) a.push(JSON.parse('{\"a\":[1,2,3]}'));",
        "const a: any[] = []; for (;;) a.push(new Uint8Array(8));",
        "const a: any[] = []; for (;;) a.push(/x/);",
    ];
    for (at, body) in bodies.into_iter().enumerate() {
        let kind = kind_of(&project, at % 2 == 0, body, 20_000).await;
        assert_eq!(kind, CallErrorKind::OutOfMemory, "{body}");
    }
}

#[tokio::test]
async fn a_null_thrown_after_a_flood_is_a_thrown_null() {
    let mut project = Project::new();
    project.options.memory_limit = 8 << 20;
    let body = "if ((globalThis as any).flooded) throw null; (globalThis as any).flooded = true; const a: any[] = []; for (;;) a.push({ a: 1 });";
    let text = one_node("action", "", body);
    let (host, _) = project.load("a.workflow.ts", &text).await.unwrap();
    host.open_scope("", &Value::Null);
    let flood = host.call(run("a"), within(false, 20_000)).await.unwrap_err();
    assert_eq!(flood.kind, CallErrorKind::OutOfMemory, "{flood:?}");
    assert_eq!(flood.message, "out of memory: scripts may use 8388608 bytes (8 MiB)");
    let thrown = host.call(run("a"), within(false, 20_000)).await.unwrap_err();
    assert_eq!(thrown.message, "thrown value null");
}
