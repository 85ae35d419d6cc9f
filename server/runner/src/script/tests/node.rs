//! The subset of Node.js that actions can use.

use piw_protocol::run::ActionReceipt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::script::{CallErrorKind, CommandHost, CommandRequest, HostFuture};

async fn check(project: &Project, imports: &str, body: &str, expected: Value) {
    match project.action(imports, body).await {
        Ok(value) => assert_eq!(value, expected, "{body}"),
        Err(error) => panic!("{body}: {error:?}"),
    }
}

#[tokio::test]
async fn files_are_read_written_and_listed() {
    let project = Project::new();
    let imports = "import fs from 'node:fs'; import fsp from 'node:fs/promises'; import path from 'node:path'; import { promisify } from 'util';";
    check(&project, imports, "fs.mkdirSync('d/e', { recursive: true }); fs.writeFileSync('d/a.txt', 'één'); fs.appendFileSync('d/a.txt', '!'); await fsp.writeFile(path.join(process.cwd(), 'd/e/b'), Buffer.from([1, 2]));
        return { text: fs.readFileSync('d/a.txt', 'utf8'), bytes: [...fs.readFileSync('d/e/b')], size: (await fsp.stat('d/a.txt')).size, list: fs.readdirSync('d'), deep: fs.readdirSync('d', { recursive: true }), kinds: (await fsp.readdir('d', { withFileTypes: true })).map((entry) => [entry.name, entry.isDirectory()]) }",
        json!({"text": "één!", "bytes": [1, 2], "size": 6, "list": ["a.txt", "e"], "deep": ["a.txt", "e", "e/b"], "kinds": [["a.txt", false], ["e", true]]})).await;
    check(&project, imports, "fs.writeFileSync('x', '1'); fs.copyFileSync('x', 'y'); fs.renameSync('y', 'z'); fs.symlinkSync('x', 'l'); fs.chmodSync('x', 0o600);
        const out = { exists: [fs.existsSync('x'), fs.existsSync('y')], link: fs.readlinkSync('l'), symlink: fs.lstatSync('l').isSymbolicLink(), real: path.basename(fs.realpathSync('l')), mode: (fs.statSync('x').mode & 0o777).toString(8), none: fs.statSync('nope', { throwIfNoEntry: false }) === undefined };
        fs.rmSync('z'); fs.unlinkSync('l'); fs.rmSync('gone', { force: true }); const tmp = fs.mkdtempSync('tmp-'); fs.rmSync(tmp, { recursive: true });
        return { ...out, left: fs.readdirSync('.').sort() }",
        json!({"exists": [true, false], "link": "x", "symlink": true, "real": "x", "mode": "600", "none": true, "left": ["a.workflow.ts", "d", "x"]})).await;
    check(&project, imports, "fs.cpSync('d', 'copy', { recursive: true }); const back = await promisify(fs.readFile)('copy/a.txt', 'utf8'); return [back, fs.readdirSync('copy/e')]", json!(["één!", ["b"]])).await;
}

#[tokio::test]
async fn file_errors_have_nodes_codes() {
    let project = Project::new();
    project.write("file", "").write("dir/x", "");
    let imports = "import fs from 'node:fs'; import fsp from 'node:fs/promises';";
    for (call, code, message) in [
        (
            "fs.readFileSync('nope')",
            "ENOENT",
            "ENOENT: no such file or directory, open 'nope'",
        ),
        (
            "await fsp.readFile('nope')",
            "ENOENT",
            "ENOENT: no such file or directory, open 'nope'",
        ),
        ("fs.readFileSync('dir')", "EISDIR", "EISDIR"),
        ("fs.readdirSync('file')", "ENOTDIR", "ENOTDIR"),
        ("fs.mkdirSync('dir')", "EEXIST", "EEXIST"),
        ("fs.rmdirSync('dir')", "ENOTEMPTY", "ENOTEMPTY"),
        ("fs.rmSync('dir')", "ERR_FS_EISDIR", "Path is a directory"),
        ("fs.writeFileSync('file', 'x', { flag: 'wx' })", "EEXIST", "EEXIST"),
        ("await fsp.access('nope')", "ENOENT", "ENOENT"),
        (
            "fs.readFileSync(5 as any)",
            "ERR_INVALID_ARG_TYPE",
            "must be of type string",
        ),
        (
            "fs.createReadStream('file')",
            "ERR_UNSUPPORTED",
            "fs.createReadStream is not available in workflow code",
        ),
    ] {
        let body =
            format!("try {{ {call}; return 'no error' }} catch (error: any) {{ return [error.code, error.message] }}");
        let found = project.action(imports, &body).await.unwrap();
        assert_eq!(found[0], code, "{call}: {found}");
        assert!(found[1].as_str().unwrap().contains(message), "{call}: {found}");
    }
}

#[tokio::test]
async fn child_processes_run() {
    let project = Project::new();
    let imports = "import cp, { exec, execFile, spawn, execSync, execFileSync, spawnSync } from 'node:child_process'; import { promisify } from 'node:util'; import { once } from 'node:events';";
    check(
        &project,
        imports,
        "const { stdout, stderr } = await promisify(exec)('echo out; echo err >&2'); return [stdout, stderr]",
        json!(["out\n", "err\n"]),
    )
    .await;
    check(
        &project,
        imports,
        "return (await promisify(execFile)('sh', ['-c', 'pwd'])).stdout.trim() === process.cwd()",
        json!(true),
    )
    .await;
    check(&project, imports, "try { await promisify(exec)('echo partial; exit 3'); } catch (error: any) { return [error.code, error.stdout, error.message.startsWith('Command failed: ')] }", json!([3, "partial\n", true])).await;
    check(&project, imports, "try { await promisify(execFile)('no-such-program'); } catch (error: any) { return [error.code, error.syscall] }", json!(["ENOENT", "spawn no-such-program"])).await;
    check(&project, imports, "const child = spawn('cat'); let text = ''; child.stdout.setEncoding('utf8'); child.stdout.on('data', (chunk: string) => (text += chunk)); child.stdin.write('one '); child.stdin.end('two'); const [code, signal] = await once(child, 'close'); return [text, code, signal]", json!(["one two", 0, null])).await;
    check(
        &project,
        imports,
        "const child = spawn('sleep', ['60']); setTimeout(() => child.kill(), 10); return await once(child, 'exit')",
        json!([null, "SIGTERM"]),
    )
    .await;
    check(&project, imports, "const child = spawn('sh', ['-c', 'echo $X'], { env: { ...process.env, X: 'set' } }); let out = ''; for await (const chunk of child.stdout) out += chunk; return out", json!("set\n")).await;
    check(
        &project,
        imports,
        "const child = spawn('nope-nope'); const [error] = await once(child, 'error'); return error.code",
        json!("ENOENT"),
    )
    .await;
    check(&project, imports, "const stop = new AbortController(); setTimeout(() => stop.abort(), 10); try { await promisify(execFile)('sleep', ['60'], { signal: stop.signal }); } catch (error: any) { return error.name }", json!("AbortError")).await;
    check(&project, imports, "return [execSync('echo hi', { encoding: 'utf8' }), String(execFileSync('cat', { input: 'fed' })), spawnSync('sh', ['-c', 'exit 4']).status, spawnSync('nope-nope').error!.message]", json!(["hi\n", "fed", 4, "spawnSync nope-nope ENOENT"])).await;
    check(&project, imports, "try { execSync('echo bad >&2; exit 2', { stdio: 'pipe' }) } catch (error: any) { return [error.status, String(error.stderr)] }", json!([2, "bad\n"])).await;
    check(
        &project,
        imports,
        "const done = spawnSync('sleep', ['60'], { timeout: 30 }); return [done.signal, (done.error as any).code]",
        json!(["SIGTERM", "ETIMEDOUT"]),
    )
    .await;
    check(&project, imports, "try { await promisify(exec)('yes', { maxBuffer: 1000 }) } catch (error: any) { return [error.code, error.stdout.length] }", json!(["ERR_CHILD_PROCESS_STDIO_MAXBUFFER", 1000])).await;
    let error = project.action(imports, "cp.fork('x.js')").await.unwrap_err();
    assert!(error.message.contains("child_process.fork is not available"), "{error}");
}

#[tokio::test]
async fn what_a_call_leaves_running_is_ended() {
    let project = Project::new();
    let pid = project
        .action(
            "import { spawn } from 'node:child_process';",
            "setInterval(() => {}, 1); return spawn('sleep', ['600']).pid",
        )
        .await
        .unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap());
    let patience = Instant::now() + Duration::from_secs(10);
    while nix::sys::signal::kill(pid, None).is_ok() {
        assert!(Instant::now() < patience, "the child still runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn buffers_and_text() {
    let project = Project::new();
    for (body, expected) in [
        (
            "return [Buffer.from('héllo').toString('hex'), Buffer.from('68c3a9', 'hex').toString(), Buffer.from('aGk=', 'base64').toString(), Buffer.from('hi').toString('base64url'), Buffer.from('ÿ', 'latin1')[0]]",
            json!(["68c3a96c6c6f", "hé", "hi", "aGk", 255]),
        ),
        (
            "return [Buffer.concat([Buffer.from('a'), Buffer.from('b')]).toString(), Buffer.byteLength('é'), Buffer.isBuffer(Buffer.alloc(1)), Buffer.alloc(3, 'ab').toString(), Buffer.compare(Buffer.from('a'), Buffer.from('b'))]",
            json!(["ab", 2, true, "aba", -1]),
        ),
        (
            "const b = Buffer.alloc(8); b.writeUInt32BE(0xdeadbeef, 0); b.writeInt16LE(-2, 4); return [b.readUInt32BE(0), b.readInt16LE(4), b.subarray(0, 2).toString('hex'), b.indexOf(0xbe), new (Buffer as any)(2).length]",
            json!([0xdead_beef_u32, -2, "dead", 2, 2]),
        ),
        (
            "try { Buffer.alloc(2).readUInt32BE(0) } catch (e: any) { return e.code }",
            json!("ERR_OUT_OF_RANGE"),
        ),
        (
            "return [btoa('hi'), atob('aGk='), new TextDecoder().decode(new TextEncoder().encode('é')), new TextDecoder('utf-16le').decode(new Uint8Array([104, 0]))]",
            json!(["aGk=", "hi", "é", "h"]),
        ),
        (
            "const d = new TextDecoder(); return d.decode(new Uint8Array([0xc3]), { stream: true }) + d.decode(new Uint8Array([0xa9]))",
            json!("é"),
        ),
        (
            "const u = new URL('../x?a=1#h', 'http://user:pw@host:8080/p/q'); u.searchParams.append('b', '2 3'); u.pathname = '/new'; return [u.href, u.port, u.origin, [...u.searchParams.keys()]]",
            json!([
                "http://user:pw@host:8080/new?a=1&b=2+3#h",
                "8080",
                "http://host:8080",
                ["a", "b"]
            ]),
        ),
        (
            "try { new URL('nope') } catch (e: any) { return [e.name, e.code] }",
            json!(["TypeError", "ERR_INVALID_URL"]),
        ),
        (
            "return structuredClone(new Map([['a', { d: new Date(0), list: new Uint8Array([1]) }]])).get('a')!.d.getTime()",
            json!(0),
        ),
        (
            "const c = new AbortController(); let n = 0; c.signal.addEventListener('abort', () => n++); c.abort(); c.abort(); return [n, c.signal.aborted, c.signal.reason.name, AbortSignal.any([c.signal]).aborted]",
            json!([1, true, "AbortError", true]),
        ),
        (
            "return await Promise.race([new Promise((done) => setTimeout(done, 5, 'timer')), new Promise((done) => AbortSignal.timeout(1000).addEventListener('abort', done))])",
            json!("timer"),
        ),
        (
            "const order: string[] = []; setTimeout(() => order.push('t2'), 2); setTimeout(() => order.push('t1'), 1); process.nextTick(() => order.push('tick')); queueMicrotask(() => order.push('micro')); const stop = setTimeout(() => order.push('never'), 1); clearTimeout(stop); await new Promise((done) => setTimeout(done, 20)); return order",
            json!(["tick", "micro", "t1", "t2"]),
        ),
        (
            "let n = 0; await new Promise<void>((done) => { const t = setInterval(() => { if (++n === 3) { clearInterval(t); done() } }, 1) }); return n",
            json!(3),
        ),
        (
            "return [typeof process.pid, process.argv.length > 0, process.hrtime().length, process.env.HOME === undefined || typeof process.env.HOME === 'string', 'NO_SUCH_VARIABLE_X' in process.env, typeof Intl]",
            json!(["number", true, 2, true, false, "undefined"]),
        ),
        (
            "const t = performance.now(); return performance.now() >= t && crypto.randomUUID().length",
            json!(36),
        ),
    ] {
        check(&project, "", body, expected).await;
    }
}

#[tokio::test]
async fn the_smaller_modules() {
    let project = Project::new();
    let imports = "import util from 'node:util'; import path from 'path'; import url from 'url'; import assert from 'assert'; import { strict } from 'assert'; import events, { EventEmitter } from 'events'; import crypto from 'crypto'; import qs from 'querystring'; import os from 'os'; import { setTimeout as sleep } from 'timers/promises'; import { StringDecoder } from 'string_decoder'; import { performance as perf } from 'perf_hooks'; import { createRequire } from 'module';";
    for (body, expected) in [
        (
            "return [path.join('/a', '../b', './c'), path.resolve('/a', 'b', '..'), path.relative('/a/b', '/a/c/d'), path.extname('x.tar.gz'), path.basename('/x/y.ts', '.ts'), path.parse('/a/b.c').name, path.normalize('a//b/../c/')]",
            json!(["/b/c", "/a", "../c/d", ".gz", "y", "b", "a/c/"]),
        ),
        (
            "return [util.format('%s %d %j %%', 'a', 2, { b: 1 }), util.inspect({ a: [1, 'x'], m: new Map([[1, 2]]), f() {}, d: { e: { f: { g: 1 } } } })]",
            json!([
                "a 2 {\"b\":1} %",
                "{\n  a: [ 1, 'x' ],\n  m: Map(1) { 1 => 2 },\n  f: [Function: f],\n  d: { e: { f: [Object] } }\n}"
            ]),
        ),
        (
            "const o: any = {}; o.self = o; return util.inspect(o)",
            json!("{ self: [Circular *1] }"),
        ),
        (
            "return [url.fileURLToPath('file:///a%20b'), url.pathToFileURL('/a b').href, url.parse('http://h:1/p?q=1').port]",
            json!(["/a b", "file:///a%20b", "1"]),
        ),
        (
            "const out: any[] = []; for (const run of [() => assert.equal(1, 2), () => assert.deepStrictEqual({ a: 1 }, { a: 2 }), () => strict.equal(1, '1' as any), () => assert.throws(() => {}), () => assert(false, 'msg')]) { try { run(); out.push('passed') } catch (e: any) { out.push(e.code) } } assert.deepEqual([1, { a: 2 }], [1, { a: 2 }]); await assert.rejects(Promise.reject(new Error('x')), /x/); return out",
            json!([
                "ERR_ASSERTION",
                "ERR_ASSERTION",
                "ERR_ASSERTION",
                "ERR_ASSERTION",
                "ERR_ASSERTION"
            ]),
        ),
        (
            "class Mine extends EventEmitter {} const e = new Mine(); const seen: any[] = []; e.once('a', (x: any) => seen.push(x)); e.emit('a', 1); e.emit('a', 2); setTimeout(() => e.emit('b', 3), 1); seen.push((await events.once(e, 'b'))[0]); try { e.emit('error', new Error('boom')) } catch (x: any) { seen.push(x.message) } return seen",
            json!([1, 3, "boom"]),
        ),
        (
            "function Old(this: any) { EventEmitter.call(this) } util.inherits(Old, EventEmitter); const o = new (Old as any)(); let n = 0; o.on('x', () => n++); o.emit('x'); return n",
            json!(1),
        ),
        (
            "return [crypto.createHash('sha256').update('a').update('b').digest('hex').slice(0, 8), crypto.createHmac('sha256', 'k').update('d').digest('base64'), crypto.createHash('md5').update('').digest('hex'), crypto.randomBytes(8).length, crypto.timingSafeEqual(Buffer.from('a'), Buffer.from('a'))]",
            json!([
                "fb8e20fc",
                "5+ohw7y2Ok2jrXhQMWjTa9ygvmIjgupgoQj61OSWZnk=",
                "d41d8cd98f00b204e9800998ecf8427e",
                8,
                true
            ]),
        ),
        (
            "return [qs.parse('a=1&b=2&a=3'), qs.stringify({ x: [1, 2], y: 'é' })]",
            json!([{"a": ["1", "3"], "b": "2"}, "x=1&x=2&y=%C3%A9"]),
        ),
        (
            "await sleep(1); return [os.EOL, os.platform() === process.platform, new StringDecoder('utf8').write(Buffer.from([0xe2, 0x82])), perf.now() > 0]",
            json!(["\n", true, "", true]),
        ),
        (
            "const require = createRequire(import.meta.url); return require('node:path') .sep + typeof require('fs').readFileSync",
            json!("/function"),
        ),
        (
            "const c = new AbortController(); setTimeout(() => c.abort(new Error('stop')), 1); try { await sleep(60000, null, { signal: c.signal }) } catch (e: any) { return e.message }",
            json!("stop"),
        ),
    ] {
        check(&project, imports, body, expected).await;
    }
}

#[tokio::test]
async fn console_output_is_formatted_and_stacks_are_kept() {
    let project = Project::new();
    project.action("", "console.log('a', { b: 1 }, [2]); console.error(new TypeError('bad')); console.warn('%d%%', 5); console.debug('d'); console.group('g'); console.info('in'); console.groupEnd(); console.assert(1 === 1, 'no'); process.stdout.write('raw\\n'); Promise.reject(new Error('nobody saw')); return 1").await.unwrap();
    let printed = project.printed();
    assert_eq!(printed[0], "Info a { b: 1 } [ 2 ]");
    assert!(
        printed[1].starts_with("Error TypeError: bad\n    at "),
        "{}",
        printed[1]
    );
    assert_eq!(printed[2..7], ["Warn 5%", "Debug d", "Info g", "Info   in", "Info raw"]);
    assert!(contains(&printed, "unhandled rejection: nobody saw"), "{printed:?}");
}

#[tokio::test]
async fn fetch_says_what_to_use_instead() {
    let error = Project::new()
        .action("", "await fetch('http://127.0.0.1/')")
        .await
        .unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Thrown);
    assert!(
        error.message.contains("fetch is not available in workflow code"),
        "{error}"
    );
}

/// Answers every command with its own text; `slow` never ends by itself.
struct Echo(Arc<Mutex<(usize, usize)>>);

impl CommandHost for Echo {
    fn run(&self, request: CommandRequest, cancel: CancellationToken) -> HostFuture<Result<ActionReceipt, String>> {
        let running = Arc::clone(&self.0);
        Box::pin(async move {
            {
                let mut counts = running.lock().unwrap();
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
            }
            let result = match request.command.as_str() {
                "slow" => {
                    cancel.cancelled().await;
                    Err("cancelled".to_owned())
                }
                "missing" => Err("no such program: missing".to_owned()),
                name => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    let code = i32::from(name == "fails");
                    let text = json!({"actionType": "shell", "command": name, "args": request.args, "exitCode": code, "stdout": request.stdin, "durationMs": 2});
                    Ok(serde_json::from_value(text).unwrap())
                }
            };
            running.lock().unwrap().0 -= 1;
            result
        })
    }
}

#[tokio::test]
async fn batches_are_bounded_ordered_and_publish_progress() {
    let mut project = Project::new();
    let counts = Arc::new(Mutex::new((0, 0)));
    project.options.commands = Some(Arc::new(Echo(Arc::clone(&counts))));
    let body = "const seen: string[] = [];
        const results = await runCommandBatch({ commands: [{ id: 'one', command: 'a', args: [1], stdin: 'in' }, ['fails'], { command: 'missing' }, { command: 'fails', allowNonZeroExit: true }, 'b', 'c', 'd'], concurrency: 2, progress: { label: 'checks' }, onResult: (r: any) => { seen.push(r.command) } });
        return { ok: results.map((r: any) => r.ok), first: [results[0].id, results[0].args, results[0].stdout, results[0].exitCode], error: results[2].error.message, seen: seen.length }";
    let (host, _) = project
        .load("a.workflow.ts", &one_node("action", "", body))
        .await
        .unwrap();
    host.open_scope("", &Value::Null);
    let published = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&published);
    let publish: crate::script::PublishUpdate = Arc::new(move |update| {
        sink.lock().unwrap().push(update);
        Box::pin(async { Ok(()) })
    });
    let output = host
        .call(
            run("a"),
            CallArgs {
                publish: Some(publish),
                ..args(false)
            },
        )
        .await
        .unwrap();
    assert_eq!(
        output,
        json!({"ok": [true, false, false, true, true, true, true], "first": ["one", ["1"], "in", 0], "error": "no such program: missing", "seen": 7})
    );
    assert_eq!(counts.lock().unwrap().1, 2);
    let published = published.lock().unwrap();
    assert_eq!(published.len(), 7);
    assert_eq!(
        published[6],
        json!({"type": "progress", "key": "batch", "data": {"label": "checks", "unit": "commands", "status": "completed", "completed": 7, "total": 7}})
    );
}

#[tokio::test]
async fn a_batch_ends_with_its_call() {
    let mut project = Project::new();
    let counts = Arc::new(Mutex::new((0, 0)));
    project.options.commands = Some(Arc::new(Echo(Arc::clone(&counts))));
    let (host, _) = project
        .load(
            "a.workflow.ts",
            &one_node(
                "action",
                "",
                "return await runCommandBatch(ctx, { commands: [['slow'], ['slow'], ['a']], concurrency: 2 })",
            ),
        )
        .await
        .unwrap();
    let error = host.call(run("a"), within(false, 50)).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TimedOut);
    let patience = Instant::now() + Duration::from_secs(5);
    while counts.lock().unwrap().0 > 0 {
        assert!(Instant::now() < patience);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn updates_reach_the_sink_before_the_result_and_refusals_reach_the_publisher() {
    let project = Project::new();
    let body = "ctx.publishUpdate({ type: 'x', key: 'unawaited', data: { n: 1 } }); await ctx.publishUpdate({ type: 'x', key: 'awaited', data: {} });
        try { await ctx.publishUpdate({ type: 'x', key: 'refused', data: {} }) } catch (error: any) { return error.message }";
    let (host, _) = project
        .load("a.workflow.ts", &one_node("action", "", body))
        .await
        .unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let publish: crate::script::PublishUpdate = Arc::new(move |update| {
        let sink = Arc::clone(&sink);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if update["key"] == "refused" {
                return Err("too many updates".to_owned());
            }
            sink.lock().unwrap().push(update["key"].clone());
            Ok(())
        })
    });
    let output = host
        .call(
            run("a"),
            CallArgs {
                publish: Some(publish),
                ..args(false)
            },
        )
        .await
        .unwrap();
    assert_eq!(output, json!("too many updates"));
    assert_eq!(*seen.lock().unwrap(), [json!("unawaited"), json!("awaited")]);
}
