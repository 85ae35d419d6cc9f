// Declarations of the globals and Node.js modules that workflow code can use. Written by `piw types`; replaced when `piw` is updated.
// A project that installs @types/node can leave this file out of its tsconfig.

interface ImportMeta {
  readonly url: string;
  readonly filename: string;
  readonly dirname: string;
}

interface Console {
  debug(...data: any[]): void;
  log(...data: any[]): void;
  info(...data: any[]): void;
  warn(...data: any[]): void;
  error(...data: any[]): void;
  trace(...data: any[]): void;
  dir(value: any, options?: any): void;
  table(value: any): void;
  assert(condition?: boolean, ...data: any[]): void;
  group(...data: any[]): void;
  groupEnd(): void;
  count(label?: string): void;
  countReset(label?: string): void;
  time(label?: string): void;
  timeLog(label?: string, ...data: any[]): void;
  timeEnd(label?: string): void;
}
declare var console: Console;

interface Timeout {
  ref(): this;
  unref(): this;
  hasRef(): boolean;
  refresh(): this;
  [Symbol.toPrimitive](): number;
}
declare function setTimeout<A extends any[]>(callback: (...args: A) => void, delay?: number, ...args: A): Timeout;
declare function setInterval<A extends any[]>(callback: (...args: A) => void, delay?: number, ...args: A): Timeout;
declare function setImmediate<A extends any[]>(callback: (...args: A) => void, ...args: A): Timeout;
declare function clearTimeout(timer?: Timeout | number): void;
declare function clearInterval(timer?: Timeout | number): void;
declare function clearImmediate(timer?: Timeout | number): void;
declare function queueMicrotask(callback: () => void): void;
declare function structuredClone<T>(value: T): T;
declare function atob(text: string): string;
declare function btoa(text: string): string;

interface Event {
  readonly type: string;
  readonly target: EventTarget | null;
  readonly defaultPrevented: boolean;
  preventDefault(): void;
  stopImmediatePropagation(): void;
}
declare var Event: { new (type: string, init?: { cancelable?: boolean }): Event };

interface EventTarget {
  addEventListener(type: string, listener: ((event: Event) => void) | null, options?: boolean | { once?: boolean; signal?: AbortSignal }): void;
  removeEventListener(type: string, listener: ((event: Event) => void) | null): void;
  dispatchEvent(event: Event): boolean;
}
declare var EventTarget: { new (): EventTarget };

interface AbortSignal extends EventTarget {
  readonly aborted: boolean;
  readonly reason: any;
  onabort: ((event: Event) => void) | null;
  throwIfAborted(): void;
}
declare var AbortSignal: {
  abort(reason?: any): AbortSignal;
  timeout(milliseconds: number): AbortSignal;
  any(signals: Iterable<AbortSignal>): AbortSignal;
};
interface AbortController {
  readonly signal: AbortSignal;
  abort(reason?: any): void;
}
declare var AbortController: { new (): AbortController };

interface DOMException extends Error {
  readonly code: number;
}
declare var DOMException: { new (message?: string, name?: string): DOMException };

interface TextEncoder {
  readonly encoding: "utf-8";
  encode(text?: string): Uint8Array;
  encodeInto(text: string, target: Uint8Array): { read: number; written: number };
}
declare var TextEncoder: { new (): TextEncoder };
interface TextDecoder {
  readonly encoding: string;
  decode(bytes?: ArrayBufferView | ArrayBuffer, options?: { stream?: boolean }): string;
}
declare var TextDecoder: { new (encoding?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder };

interface URLSearchParams extends Iterable<[string, string]> {
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  toString(): string;
  forEach(callback: (value: string, name: string, params: URLSearchParams) => void): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
}
declare var URLSearchParams: { new (init?: string | Iterable<[string, string]> | Record<string, string> | URLSearchParams): URLSearchParams };
interface URL {
  href: string;
  readonly origin: string;
  protocol: string;
  username: string;
  password: string;
  host: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  readonly searchParams: URLSearchParams;
  hash: string;
  toString(): string;
  toJSON(): string;
}
declare var URL: { new (url: string | URL, base?: string | URL): URL; canParse(url: string | URL, base?: string | URL): boolean; parse(url: string | URL, base?: string | URL): URL | null };

declare var performance: { now(): number; readonly timeOrigin: number };
declare var crypto: {
  getRandomValues<T extends ArrayBufferView>(target: T): T;
  randomUUID(): string;
  subtle: { digest(algorithm: string | { name: string }, data: ArrayBufferView | ArrayBuffer): Promise<ArrayBuffer> };
};

type BufferEncoding = "utf8" | "utf-8" | "hex" | "base64" | "base64url" | "latin1" | "binary" | "ascii" | "utf16le" | "utf-16le" | "ucs2" | "ucs-2";

interface Buffer extends Uint8Array {
  toString(encoding?: BufferEncoding, start?: number, end?: number): string;
  toJSON(): { type: "Buffer"; data: number[] };
  equals(other: Uint8Array): boolean;
  compare(target: Uint8Array, targetStart?: number, targetEnd?: number, start?: number, end?: number): -1 | 0 | 1;
  slice(start?: number, end?: number): any;
  subarray(start?: number, end?: number): any;
  write(text: string, offset?: number, length?: number, encoding?: BufferEncoding): number;
  copy(target: Uint8Array, targetStart?: number, start?: number, end?: number): number;
  indexOf(value: any, from?: number, encoding?: BufferEncoding): number;
  lastIndexOf(value: any, from?: number, encoding?: BufferEncoding): number;
  includes(value: any, from?: number, encoding?: BufferEncoding): boolean;
  readUInt8(offset?: number): number;
  readInt8(offset?: number): number;
  readUInt16LE(offset?: number): number;
  readUInt16BE(offset?: number): number;
  readInt16LE(offset?: number): number;
  readInt16BE(offset?: number): number;
  readUInt32LE(offset?: number): number;
  readUInt32BE(offset?: number): number;
  readInt32LE(offset?: number): number;
  readInt32BE(offset?: number): number;
  readFloatLE(offset?: number): number;
  readFloatBE(offset?: number): number;
  readDoubleLE(offset?: number): number;
  readDoubleBE(offset?: number): number;
  readBigInt64LE(offset?: number): bigint;
  readBigInt64BE(offset?: number): bigint;
  readBigUInt64LE(offset?: number): bigint;
  readBigUInt64BE(offset?: number): bigint;
  writeUInt8(value: number, offset?: number): number;
  writeInt8(value: number, offset?: number): number;
  writeUInt16LE(value: number, offset?: number): number;
  writeUInt16BE(value: number, offset?: number): number;
  writeInt16LE(value: number, offset?: number): number;
  writeInt16BE(value: number, offset?: number): number;
  writeUInt32LE(value: number, offset?: number): number;
  writeUInt32BE(value: number, offset?: number): number;
  writeInt32LE(value: number, offset?: number): number;
  writeInt32BE(value: number, offset?: number): number;
  writeFloatLE(value: number, offset?: number): number;
  writeFloatBE(value: number, offset?: number): number;
  writeDoubleLE(value: number, offset?: number): number;
  writeDoubleBE(value: number, offset?: number): number;
}
declare var Buffer: {
  from(value: string, encoding?: BufferEncoding): Buffer;
  from(value: ArrayBuffer, offset?: number, length?: number): Buffer;
  from(value: Uint8Array | readonly number[] | { type: "Buffer"; data: number[] }): Buffer;
  alloc(size: number, fill?: string | number | Uint8Array, encoding?: BufferEncoding): Buffer;
  allocUnsafe(size: number): Buffer;
  concat(list: readonly Uint8Array[], total?: number): Buffer;
  compare(left: Uint8Array, right: Uint8Array): -1 | 0 | 1;
  isBuffer(value: any): value is Buffer;
  isEncoding(encoding: string): encoding is BufferEncoding;
  byteLength(value: string | ArrayBufferView | ArrayBuffer, encoding?: BufferEncoding): number;
};

declare namespace NodeJS {
  type Platform = "linux" | "darwin" | (string & {});
  type Signals = `SIG${string}`;
  interface ErrnoException extends Error {
    code?: string;
    errno?: number;
    syscall?: string;
    path?: string;
  }
  type Timeout = ReturnType<typeof setTimeout>;
}

interface Process {
  readonly env: Record<string, string | undefined>;
  readonly platform: NodeJS.Platform;
  readonly arch: string;
  readonly version: string;
  readonly versions: Record<string, string>;
  readonly argv: string[];
  readonly pid: number;
  readonly ppid: number;
  cwd(): string;
  /** Fails the node: workflow code cannot end its process. */
  exit(code?: number): never;
  kill(pid: number, signal?: string | number): true;
  nextTick(callback: (...args: any[]) => void, ...args: any[]): void;
  uptime(): number;
  hrtime: { (previous?: [number, number]): [number, number]; bigint(): bigint };
  stdout: { write(text: string | Uint8Array): boolean; isTTY: false };
  stderr: { write(text: string | Uint8Array): boolean; isTTY: false };
  on(event: string, listener: (...args: any[]) => void): this;
  once(event: string, listener: (...args: any[]) => void): this;
  off(event: string, listener: (...args: any[]) => void): this;
  emitWarning(warning: string | Error): void;
}
declare var process: Process;
/** Not available; throws. Call an HTTP client from a shell node. */
declare function fetch(...args: any[]): never;

declare module "node:process" {
  const value: Process;
  export default value;
  export const env: Process["env"], platform: Process["platform"], cwd: Process["cwd"], argv: Process["argv"];
}

declare module "node:buffer" {
  const BufferClass: typeof Buffer;
  export { BufferClass as Buffer };
}

declare module "node:path" {
  export interface ParsedPath { root: string; dir: string; base: string; ext: string; name: string }
  interface Path {
    readonly sep: "/"; readonly delimiter: ":"; readonly posix: Path;
    isAbsolute(path: string): boolean; normalize(path: string): string; join(...parts: string[]): string; resolve(...parts: string[]): string;
    dirname(path: string): string; basename(path: string, suffix?: string): string; extname(path: string): string; relative(from: string, to: string): string;
    parse(path: string): ParsedPath; format(parts: Partial<ParsedPath>): string; matchesGlob(path: string, pattern: string): boolean;
  }
  const path: Path;
  export default path;
  export const sep: "/", delimiter: ":", posix: Path;
  export const isAbsolute: Path["isAbsolute"], normalize: Path["normalize"], join: Path["join"], resolve: Path["resolve"], dirname: Path["dirname"], basename: Path["basename"], extname: Path["extname"], relative: Path["relative"], parse: Path["parse"], format: Path["format"], matchesGlob: Path["matchesGlob"];
}

declare module "node:fs" {
  export type PathLike = string | URL | Uint8Array;
  export type Data = string | ArrayBufferView;
  export type Encoding = BufferEncoding | { encoding: BufferEncoding; flag?: string };
  export type WriteOptions = BufferEncoding | { encoding?: BufferEncoding | null; mode?: number | string; flag?: string } | null;
  export interface Kind {
    isFile(): boolean; isDirectory(): boolean; isSymbolicLink(): boolean; isFIFO(): boolean; isSocket(): boolean; isCharacterDevice(): boolean; isBlockDevice(): boolean;
  }
  export interface Stats extends Kind {
    size: number; mode: number; uid: number; gid: number; nlink: number; ino: number; dev: number;
    atimeMs: number; mtimeMs: number; ctimeMs: number; birthtimeMs: number; atime: Date; mtime: Date; ctime: Date; birthtime: Date;
  }
  export interface Dirent extends Kind { name: string; parentPath: string; path: string }
  export interface CopyOptions { recursive?: boolean; force?: boolean; errorOnExist?: boolean; dereference?: boolean; filter?: (from: string, to: string) => boolean }

  export function readFileSync(path: PathLike, options: Encoding): string;
  export function readFileSync(path: PathLike, options?: { encoding?: null; flag?: string } | null): Buffer;
  export function writeFileSync(path: PathLike, data: Data, options?: WriteOptions): void;
  export function appendFileSync(path: PathLike, data: Data, options?: WriteOptions): void;
  export function statSync(path: PathLike, options: { throwIfNoEntry: false }): Stats | undefined;
  export function statSync(path: PathLike): Stats;
  export function lstatSync(path: PathLike, options: { throwIfNoEntry: false }): Stats | undefined;
  export function lstatSync(path: PathLike): Stats;
  export function readdirSync(path: PathLike, options: { withFileTypes: true; recursive?: boolean }): Dirent[];
  export function readdirSync(path: PathLike, options?: { withFileTypes?: false; recursive?: boolean; encoding?: "utf8" } | "utf8" | null): string[];
  export function mkdirSync(path: PathLike, options?: number | { recursive?: boolean; mode?: number | string }): string | undefined;
  export function mkdtempSync(prefix: string): string;
  export function rmSync(path: PathLike, options?: { recursive?: boolean; force?: boolean }): void;
  export function rmdirSync(path: PathLike): void;
  export function unlinkSync(path: PathLike): void;
  export function renameSync(from: PathLike, to: PathLike): void;
  export function copyFileSync(from: PathLike, to: PathLike, mode?: number): void;
  export function cpSync(from: PathLike, to: PathLike, options?: CopyOptions): void;
  export const realpathSync: { (path: PathLike): string; native(path: PathLike): string };
  export function readlinkSync(path: PathLike): string;
  export function symlinkSync(target: PathLike, path: PathLike): void;
  export function linkSync(from: PathLike, to: PathLike): void;
  export function accessSync(path: PathLike, mode?: number): void;
  export function chmodSync(path: PathLike, mode: number | string): void;
  export function utimesSync(path: PathLike, atime: number | Date, mtime: number | Date): void;
  export function truncateSync(path: PathLike, length?: number): void;
  export function existsSync(path: PathLike): boolean;
  export const constants: { F_OK: 0; X_OK: 1; W_OK: 2; R_OK: 4; COPYFILE_EXCL: 1; [name: string]: number };
  export const promises: typeof import("node:fs/promises");
  const fs: typeof import("node:fs");
  export default fs;
}

declare module "node:fs/promises" {
  import type { CopyOptions, Data, Dirent, Encoding, PathLike, Stats, WriteOptions } from "node:fs";
  export function readFile(path: PathLike, options: Encoding): Promise<string>;
  export function readFile(path: PathLike, options?: { encoding?: null; flag?: string; signal?: AbortSignal } | null): Promise<Buffer>;
  export function writeFile(path: PathLike, data: Data, options?: WriteOptions): Promise<void>;
  export function appendFile(path: PathLike, data: Data, options?: WriteOptions): Promise<void>;
  export function stat(path: PathLike): Promise<Stats>;
  export function lstat(path: PathLike): Promise<Stats>;
  export function readdir(path: PathLike, options: { withFileTypes: true; recursive?: boolean }): Promise<Dirent[]>;
  export function readdir(path: PathLike, options?: { withFileTypes?: false; recursive?: boolean; encoding?: "utf8" } | "utf8" | null): Promise<string[]>;
  export function mkdir(path: PathLike, options?: number | { recursive?: boolean; mode?: number | string }): Promise<string | undefined>;
  export function mkdtemp(prefix: string): Promise<string>;
  export function rm(path: PathLike, options?: { recursive?: boolean; force?: boolean }): Promise<void>;
  export function rmdir(path: PathLike): Promise<void>;
  export function unlink(path: PathLike): Promise<void>;
  export function rename(from: PathLike, to: PathLike): Promise<void>;
  export function copyFile(from: PathLike, to: PathLike, mode?: number): Promise<void>;
  export function cp(from: PathLike, to: PathLike, options?: CopyOptions): Promise<void>;
  export function realpath(path: PathLike): Promise<string>;
  export function readlink(path: PathLike): Promise<string>;
  export function symlink(target: PathLike, path: PathLike): Promise<void>;
  export function link(from: PathLike, to: PathLike): Promise<void>;
  export function access(path: PathLike, mode?: number): Promise<void>;
  export function chmod(path: PathLike, mode: number | string): Promise<void>;
  export function utimes(path: PathLike, atime: number | Date, mtime: number | Date): Promise<void>;
  export function truncate(path: PathLike, length?: number): Promise<void>;
  const fs: typeof import("node:fs/promises");
  export default fs;
}

declare module "node:events" {
  export class EventEmitter {
    on(name: string | symbol, listener: (...args: any[]) => void): this;
    addListener(name: string | symbol, listener: (...args: any[]) => void): this;
    once(name: string | symbol, listener: (...args: any[]) => void): this;
    off(name: string | symbol, listener: (...args: any[]) => void): this;
    removeListener(name: string | symbol, listener: (...args: any[]) => void): this;
    removeAllListeners(name?: string | symbol): this;
    prependListener(name: string | symbol, listener: (...args: any[]) => void): this;
    emit(name: string | symbol, ...args: any[]): boolean;
    listenerCount(name: string | symbol): number;
    listeners(name: string | symbol): Function[];
    eventNames(): (string | symbol)[];
  }
  export function once(emitter: EventEmitter | EventTarget, name: string | symbol, options?: { signal?: AbortSignal }): Promise<any[]>;
  export function on(emitter: EventEmitter, name: string | symbol, options?: { signal?: AbortSignal }): AsyncIterableIterator<any[]>;
  export default EventEmitter;
}

declare module "node:child_process" {
  import { EventEmitter } from "node:events";
  interface SpawnOptions {
    cwd?: string | URL; env?: Record<string, string | undefined>; argv0?: string; shell?: boolean | string; detached?: boolean; timeout?: number; killSignal?: string | number; signal?: AbortSignal;
    stdio?: "pipe" | "ignore" | "inherit" | readonly ("pipe" | "ignore" | "inherit" | null | undefined)[];
  }
  interface Readable extends EventEmitter, AsyncIterable<any> { setEncoding(encoding?: BufferEncoding): this; pipe<T extends { write(chunk: any): any }>(target: T): T; resume(): this }
  interface Writable extends EventEmitter { write(chunk: string | Uint8Array, encoding?: BufferEncoding): boolean; end(chunk?: string | Uint8Array, encoding?: BufferEncoding): this }
  export interface ChildProcess extends EventEmitter {
    readonly pid?: number; readonly exitCode: number | null; readonly signalCode: NodeJS.Signals | null; readonly killed: boolean;
    readonly stdin: Writable | null; readonly stdout: Readable | null; readonly stderr: Readable | null;
    kill(signal?: string | number): boolean; ref(): this; unref(): this;
  }
  interface ChildProcessWithStreams extends ChildProcess { readonly stdin: Writable; readonly stdout: Readable; readonly stderr: Readable }
  interface ExecOptions extends Omit<SpawnOptions, "stdio" | "detached"> { encoding?: BufferEncoding | "buffer" | null; maxBuffer?: number }
  interface ExecException extends Error { code?: number | string | null; killed?: boolean; signal?: NodeJS.Signals | null; cmd?: string; stdout?: string; stderr?: string }
  type Done = (error: ExecException | null, stdout: string, stderr: string) => void;
  interface SyncOptions extends SpawnOptions { input?: string | ArrayBufferView; maxBuffer?: number; encoding?: BufferEncoding | "buffer" | null }
  type SyncText = SyncOptions & { encoding: BufferEncoding };
  interface SyncResult<T> { pid: number; output: (T | null)[] | null; stdout: T; stderr: T; status: number | null; signal: NodeJS.Signals | null; error?: NodeJS.ErrnoException }
  interface Promised { __promisify__(...args: any[]): Promise<{ stdout: string; stderr: string }> }

  export function spawn(command: string, args?: readonly string[], options?: SpawnOptions): ChildProcessWithStreams;
  export function spawn(command: string, options: SpawnOptions): ChildProcessWithStreams;
  export const exec: Promised & { (command: string, callback?: Done): ChildProcess; (command: string, options: ExecOptions, callback?: Done): ChildProcess };
  export const execFile: Promised & { (file: string, callback?: Done): ChildProcess; (file: string, args: readonly string[], callback?: Done): ChildProcess; (file: string, args: readonly string[] | null | undefined, options: ExecOptions, callback?: Done): ChildProcess };
  export function spawnSync(command: string, args: readonly string[] | undefined, options: SyncText): SyncResult<string>;
  export function spawnSync(command: string, args?: readonly string[], options?: SyncOptions): SyncResult<Buffer>;
  export function execSync(command: string, options: SyncText): string;
  export function execSync(command: string, options?: SyncOptions): Buffer;
  export function execFileSync(file: string, args: readonly string[] | undefined, options: SyncText): string;
  export function execFileSync(file: string, args?: readonly string[], options?: SyncOptions): Buffer;
}

declare module "node:util" {
  interface Inspect { (value: any, options?: { depth?: number | null; maxArrayLength?: number }): string; readonly custom: unique symbol }
  export const inspect: Inspect;
  export function format(format?: any, ...args: any[]): string;
  export function promisify<T extends { __promisify__: any }>(original: T): T["__promisify__"];
  export function promisify<A extends any[], R>(original: (...args: [...A, (error: any, value: R) => void]) => void): (...args: A) => Promise<R>;
  export function callbackify(original: (...args: any[]) => Promise<any>): (...args: any[]) => void;
  export function inherits(constructor: any, parent: any): void;
  export function deprecate<T>(target: T): T;
  export function isDeepStrictEqual(left: any, right: any): boolean;
  export function stripVTControlCharacters(text: string): string;
  export const types: Record<string, (value: any) => boolean>;
}

declare module "node:url" {
  const URLClass: typeof URL, URLSearchParamsClass: typeof URLSearchParams;
  export { URLClass as URL, URLSearchParamsClass as URLSearchParams };
  export function fileURLToPath(url: string | URL): string;
  export function pathToFileURL(path: string): URL;
  export function parse(text: string, queryAsObject?: boolean): any;
  export function format(url: any): string;
  export function resolve(from: string, to: string): string;
}

declare module "node:crypto" {
  export interface Hash { update(data: string | ArrayBufferView, encoding?: BufferEncoding): this; digest(): Buffer; digest(encoding: BufferEncoding): string; copy(): Hash }
  export interface Hmac { update(data: string | ArrayBufferView, encoding?: BufferEncoding): this; digest(): Buffer; digest(encoding: BufferEncoding): string }
  export function createHash(algorithm: string): Hash;
  export function createHmac(algorithm: string, key: string | ArrayBufferView): Hmac;
  export function hash(algorithm: string, data: string | ArrayBufferView, encoding?: BufferEncoding): string;
  export function getHashes(): string[];
  export function randomBytes(size: number): Buffer;
  export function randomInt(max: number): number;
  export function randomInt(min: number, max: number): number;
  export function randomUUID(): string;
  export function timingSafeEqual(left: ArrayBufferView, right: ArrayBufferView): boolean;
  export function getRandomValues<T extends ArrayBufferView>(target: T): T;
  const crypto: typeof import("node:crypto");
  export default crypto;
}

declare module "node:os" {
  export const EOL: "\n";
  export const devNull: string;
  export const constants: { signals: Record<string, number> };
  export function platform(): NodeJS.Platform;
  export function arch(): string;
  export function type(): string;
  export function release(): string;
  export function hostname(): string;
  export function homedir(): string;
  export function tmpdir(): string;
  export function userInfo(): { username: string; uid: number; gid: number; homedir: string; shell: string | null };
  export function availableParallelism(): number;
  export function cpus(): { model: string; speed: number }[];
  const os: typeof import("node:os");
  export default os;
}

declare module "node:assert" {
  type Message = string | Error;
  interface Assert {
    (value: unknown, message?: Message): asserts value;
    ok(value: unknown, message?: Message): asserts value;
    fail(message?: Message): never;
    equal(actual: unknown, expected: unknown, message?: Message): void;
    notEqual(actual: unknown, expected: unknown, message?: Message): void;
    deepEqual(actual: unknown, expected: unknown, message?: Message): void;
    notDeepEqual(actual: unknown, expected: unknown, message?: Message): void;
    strictEqual<T>(actual: unknown, expected: T, message?: Message): asserts actual is T;
    notStrictEqual(actual: unknown, expected: unknown, message?: Message): void;
    deepStrictEqual<T>(actual: unknown, expected: T, message?: Message): asserts actual is T;
    notDeepStrictEqual(actual: unknown, expected: unknown, message?: Message): void;
    match(text: string, pattern: RegExp, message?: Message): void;
    doesNotMatch(text: string, pattern: RegExp, message?: Message): void;
    ifError(value: unknown): void;
    throws(run: () => unknown, expected?: any, message?: Message): void;
    doesNotThrow(run: () => unknown, message?: Message): void;
    rejects(run: (() => Promise<unknown>) | Promise<unknown>, expected?: any, message?: Message): Promise<void>;
    doesNotReject(run: (() => Promise<unknown>) | Promise<unknown>, message?: Message): Promise<void>;
    strict: Assert;
  }
  const assert: Assert;
  export default assert;
  export const strict: Assert;
}
declare module "node:assert/strict" {
  import { strict } from "node:assert";
  export default strict;
}

declare module "node:timers" {
  const start: typeof setTimeout, stop: typeof clearTimeout, repeat: typeof setInterval, stopRepeating: typeof clearInterval, soon: typeof setImmediate, notSoon: typeof clearImmediate;
  export { start as setTimeout, stop as clearTimeout, repeat as setInterval, stopRepeating as clearInterval, soon as setImmediate, notSoon as clearImmediate };
}
declare module "node:timers/promises" {
  export function setTimeout<T = void>(delay?: number, value?: T, options?: { signal?: AbortSignal }): Promise<T>;
  export function setImmediate<T = void>(value?: T, options?: { signal?: AbortSignal }): Promise<T>;
  export function setInterval<T = void>(delay?: number, value?: T, options?: { signal?: AbortSignal }): AsyncIterableIterator<T>;
}
declare module "node:string_decoder" {
  export class StringDecoder { constructor(encoding?: BufferEncoding); write(chunk: Uint8Array): string; end(chunk?: Uint8Array): string }
}
declare module "node:querystring" {
  export function parse(text: string, separator?: string, equals?: string): Record<string, string | string[]>;
  export function stringify(value: Record<string, any>, separator?: string, equals?: string): string;
  export function escape(text: string): string;
  export function unescape(text: string): string;
}
declare module "node:perf_hooks" {
  const clock: typeof performance;
  export { clock as performance };
}
declare module "node:module" {
  export function createRequire(from: string | URL): { (name: string): any; resolve(name: string): string };
  export const builtinModules: string[];
}

declare module "process" { export * from "node:process"; export { default } from "node:process" }
declare module "buffer" { export * from "node:buffer" }
declare module "path" { export * from "node:path"; export { default } from "node:path" }
declare module "fs" { export * from "node:fs"; export { default } from "node:fs" }
declare module "fs/promises" { export * from "node:fs/promises"; export { default } from "node:fs/promises" }
declare module "events" { export * from "node:events"; export { default } from "node:events" }
declare module "child_process" { export * from "node:child_process" }
declare module "util" { export * from "node:util" }
declare module "url" { export * from "node:url" }
declare module "crypto" { export * from "node:crypto"; export { default } from "node:crypto" }
declare module "os" { export * from "node:os"; export { default } from "node:os" }
declare module "assert" { export * from "node:assert"; export { default } from "node:assert" }
declare module "timers/promises" { export * from "node:timers/promises" }
