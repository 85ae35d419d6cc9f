// The glue between a Pi session and `piw pi bridge`. It forwards what happens in Pi and carries out what the bridge says; it
// decides only what must be decided at the very moment: whether a message may be handed to Pi now, and whether a tool may run.
// `piw pi install` writes this file; do not edit it.
//
// Only types are imported from Pi, so that the file loads in every version of it.
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";

const INSTALLED = "@PIW_PROGRAM@";
const PROGRAM = process.env.PIW_BIN || (INSTALLED.startsWith("/") ? INSTALLED : "piw");
const GLUE = 1;
const ACTIONS = ["list", "start", "status", "pause", "resume", "cancel", "answer", "update", "submit"];
const CARDS = ["step", "decision", "notification", "terminal", "follow-up"].map((kind) => `pi-workflows-${kind}`);
const RESTARTS = [500, 2_000, 10_000];
/** Time after which a bridge counts as one that works. */
const STEADY = 60_000;
/** Columns beside a widget. */
const MARGIN = 2;
/** Events that are kept until the bridge says whether to record the turn that has just begun. */
const KEPT = 256;

type Gate = { owned: boolean; allowed: string[] | null; blocked: string | null };
/** What must survive /reload: it belongs to the session, not to this evaluation of the module. */
type Memory = { queued: Set<string>; turn: string | null; stop: string };
type Pending = { resolve: (text: string) => void; reject: (error: Error) => void };

const sessions: Map<string, Memory> = ((globalThis as any)[Symbol.for("piw.sessions")] ??= new Map());

export default function piw(pi: ExtensionAPI) {
	if (PROGRAM.startsWith("/") && !existsSync(PROGRAM)) {
		const gone = `piw is not at ${PROGRAM}; run: piw pi install`;
		pi.registerCommand("workflow", {
			description: "Durable workflows (piw is missing)",
			handler: async (_args, ctx) => ctx.ui.notify(gone, "error"),
		});
		return;
	}

	let ctx: ExtensionContext | undefined;
	let memory: Memory = { queued: new Set(), turn: null, stop: "completed" };
	let child: ChildProcess | undefined;
	let started = 0;
	let failures = 0;
	let restart: ReturnType<typeof setTimeout> | undefined;
	let problem: string | undefined;
	let epoch: number | null = null;
	let gate: Gate = { owned: false, allowed: null, blocked: null };
	let recording = false;
	let kept: object[] = [];
	const recorded = new Set<string>();
	const updated = new Map<string, number>();
	const pending = new Map<string, Pending>();

	// --- The bridge -------------------------------------------------------------------------------------------------

	/** Nothing of the bridge may keep Pi from ending, except a tool call that waits for its answer. */
	function hold(on: boolean) {
		for (const handle of [child?.stdin, child?.stdout] as any[]) {
			if (on) handle?.ref?.();
			else handle?.unref?.();
		}
		if (on) child?.ref();
		else child?.unref();
	}

	function tell(message: object) {
		const stdin = child?.stdin;
		if (!stdin || stdin.destroyed) return;
		// A lone surrogate has no place in JSON that others read.
		const line = JSON.stringify(message).replace(/(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/gi, "$1\\ufffd");
		stdin.write(`${line}\n`);
	}

	function start() {
		if (child || !ctx) return;
		clearTimeout(restart);
		restart = undefined;
		let mine: ChildProcess;
		try {
			mine = spawn(PROGRAM, ["pi", "bridge"], { stdio: ["pipe", "pipe", "ignore"] });
		} catch (error) {
			ended(undefined, String(error));
			return;
		}
		child = mine;
		started = Date.now();
		mine.on("error", (error) => ended(mine, error.message));
		mine.on("exit", (code) => ended(mine, `it ended with code ${code}`));
		mine.stdin?.on("error", () => {});
		mine.stdout?.on("error", () => {});
		let rest = "";
		mine.stdout?.setEncoding("utf8");
		mine.stdout?.on("data", (text: string) => {
			const lines = (rest + text).split("\n");
			rest = lines.pop() ?? "";
			for (const line of lines) {
				// What this session's bridge said after its end concerns nobody.
				if (child !== mine || line === "") continue;
				try {
					obey(JSON.parse(line));
				} catch (error) {
					if (isStale(error)) return stop();
				}
			}
		});
		hold(pending.size > 0);
		tell({
			type: "hello",
			glue: GLUE,
			sessionId: ctx.sessionManager.getSessionId(),
			cwd: ctx.cwd,
			columns: columns() - MARGIN,
			queued: [...memory.queued],
			turn: memory.turn,
		});
	}

	function ended(mine: ChildProcess | undefined, why: string) {
		if (mine !== child) return;
		child = undefined;
		epoch = null;
		recording = false;
		problem = `the workflow bridge is not there (${PROGRAM}: ${why}); piw pi doctor says more`;
		for (const call of pending.values()) call.reject(new Error(problem));
		pending.clear();
		safely(() => {
			ctx?.ui.setWidget("piw", undefined);
			ctx?.ui.setStatus("piw", undefined);
		});
		failures = Date.now() - started > STEADY ? 0 : failures + 1;
		const delay = RESTARTS[failures - 1] ?? (failures === 0 ? RESTARTS[0] : undefined);
		// A bridge that keeps ending is left alone until somebody asks for it.
		if (ctx && delay !== undefined) {
			restart = setTimeout(start, delay);
			(restart as any).unref?.();
		}
	}

	/** Ends the bridge of this session: its input closes, and every handle goes. */
	function stop() {
		const mine = child;
		child = undefined;
		ctx = undefined;
		clearTimeout(restart);
		process.stdout.off("resize", resized);
		for (const call of pending.values()) call.reject(new Error("the session ended"));
		pending.clear();
		if (!mine) return;
		mine.removeAllListeners();
		mine.on("error", () => {});
		mine.stdin?.end();
		mine.stdout?.destroy();
		mine.unref();
		(mine.stdin as any)?.unref?.();
	}

	function ask(callId: string, input: unknown): Promise<string> {
		start();
		if (!child) return Promise.reject(new Error(problem ?? "the session ended"));
		return new Promise((resolve, reject) => {
			const done = (then: () => void) => {
				pending.delete(callId);
				hold(pending.size > 0);
				then();
			};
			pending.set(callId, {
				resolve: (text) => done(() => resolve(text)),
				reject: (error) => done(() => reject(error)),
			});
			hold(true);
			tell({ type: "tool", callId, input });
		});
	}

	// --- Instructions -----------------------------------------------------------------------------------------------

	function obey(message: any) {
		if (!ctx) return;
		switch (message.type) {
			case "ready":
				problem = undefined;
				break;
			case "epoch":
				epoch = message.epoch;
				break;
			case "gate":
				gate = message;
				break;
			case "observe":
				tell({ type: "observed", seq: message.seq, ...observe(message.messageId, message.replyTo) });
				break;
			case "send":
				tell({ type: "sent", messageId: message.messageId, sent: send(message) });
				break;
			case "abort":
				if (memory.turn === message.turnId) ctx.abort();
				break;
			case "record":
				record(message.on, message.from);
				break;
			case "toolResult": {
				const call = pending.get(message.callId);
				if (message.isError) call?.reject(new Error(message.text));
				else call?.resolve(message.text);
				break;
			}
			case "widget":
				ctx.ui.setWidget("piw", message.lines.length ? message.lines : undefined);
				break;
			case "status":
				ctx.ui.setStatus("piw", message.text ?? undefined);
				break;
			case "notify":
				ctx.ui.notify(message.text, message.level);
				break;
			case "select":
				question(message.seq, () => ctx!.ui.select(title(message.title), message.options.map((option: string) => clip(option, columns() - 6))), message.options);
				break;
			case "input":
				question(message.seq, () => ctx!.ui.input(title(message.title)));
				break;
		}
	}

	async function question(seq: number, show: () => Promise<string | undefined>, options?: string[]) {
		let value: string | undefined;
		try {
			value = await show();
		} catch {
			value = undefined;
		}
		// What was shown may be cut; the bridge knows the whole.
		const whole = options?.find((option) => clip(option, columns() - 6) === value);
		tell({ type: "choice", seq, value: whole ?? value ?? null });
	}

	function branch(): any[] {
		return ctx!.sessionManager.getBranch() as any[];
	}

	function find(entries: any[], messageId: string | null): number {
		if (!messageId) return -1;
		for (let at = entries.length - 1; at >= 0; at--) {
			const entry = entries[at];
			if (entry.type === "custom_message" && entry.details?.workflowMessageId === messageId) return at;
		}
		return -1;
	}

	/** One look at the branch and at Pi, at one moment. */
	function observe(messageId: string | null, replyTo: string | null) {
		const entries = messageId || replyTo ? branch() : [];
		const at = find(entries, messageId);
		if (at >= 0) memory.queued.delete(messageId!);
		return {
			messageId,
			entryId: at >= 0 ? entries[at].id : null,
			idle: ctx!.isIdle() && memory.turn === null,
			pending: ctx!.hasPendingMessages(),
			queued: messageId !== null && memory.queued.has(messageId),
			reply: reply(entries, find(entries, replyTo)),
		};
	}

	/** The last complete assistant message after an entry. */
	function reply(entries: any[], after: number) {
		if (after < 0) return null;
		for (let at = entries.length - 1; at > after; at--) {
			const message = entries[at].type === "message" ? entries[at].message : undefined;
			if (message?.role !== "assistant") continue;
			if (message.stopReason !== "stop" && message.stopReason !== "length") return null;
			const parts = (message.content ?? []).filter((part: any) => part.type === "text");
			return { entryId: entries[at].id, text: parts.map((part: any) => part.text).join("") };
		}
		return null;
	}

	/** Hands a message to Pi if this very moment allows it. Nothing may be awaited in here. */
	function send(message: any): boolean {
		const id = message.messageId;
		const free =
			message.epoch === epoch &&
			!memory.queued.has(id) &&
			memory.turn === null &&
			ctx!.isIdle() &&
			!ctx!.hasPendingMessages() &&
			find(branch(), id) < 0;
		if (!free) return false;
		memory.queued.add(id);
		try {
			pi.sendMessage(message.message, { triggerTurn: message.startsTurn });
			return true;
		} catch (error) {
			memory.queued.delete(id);
			throw error;
		}
	}

	// --- What happens in Pi -----------------------------------------------------------------------------------------

	function resized() {
		tell({ type: "columns", columns: columns() - MARGIN });
	}

	pi.on("session_start", (event, context) => {
		if (child) stop();
		ctx = context;
		failures = 0;
		const id = context.sessionManager.getSessionId();
		const known = sessions.get(id);
		memory = known && event.reason === "reload" ? known : { queued: new Set(), turn: null, stop: "completed" };
		sessions.clear();
		sessions.set(id, memory);
		gate = { owned: false, allowed: null, blocked: null };
		process.stdout.on("resize", resized);
		start();
	});
	pi.on("session_shutdown", () => stop());
	for (const moved of ["session_tree", "session_compact"] as const) {
		pi.on(moved as any, () => tell({ type: "changed" }));
	}

	pi.on("agent_start", () => {
		if (memory.turn === null) {
			memory.turn = crypto.randomUUID();
			kept = [];
			tell({ type: "turnStart", turnId: memory.turn });
		}
	});
	pi.on("agent_end", (event, context) => {
		const last: any = [...((event as any).messages ?? [])].reverse().find((message: any) => message.role === "assistant");
		memory.stop = last?.stopReason === "aborted" ? "aborted" : last?.stopReason === "error" ? "error" : "completed";
		entries();
		// Pi before 1.0 does not say when it has settled: it is idle soon after, or it goes on by itself.
		if (!("mode" in context)) settle(40);
	});
	pi.on("agent_settled" as any, (event: any) => {
		if (event.aborted) memory.stop = "aborted";
		settled();
	});

	function settle(tries: number) {
		const timer = setTimeout(() => {
			safely(() => {
				if (!ctx || memory.turn === null) return;
				if (ctx.isIdle()) settled();
				else if (tries > 0) settle(tries - 1);
			});
		}, 25);
		(timer as any).unref?.();
	}

	function settled() {
		const turnId = memory.turn;
		if (turnId === null || !ctx) return;
		memory.turn = null;
		entries();
		const last = [...branch()].reverse().find((entry) => entry.type === "message" && entry.message?.role === "assistant");
		tell({ type: "turnEnd", turnId, stop: memory.stop, entryId: last?.id ?? null });
		memory.stop = "completed";
		updated.clear();
		// Pi counts as idle only after this handler.
		(setTimeout(() => tell({ type: "changed" }), 0) as any).unref?.();
	}

	pi.on("tool_call", (event) => {
		if (event.toolName === "workflow") return;
		if (gate.blocked) return { block: true, reason: gate.blocked };
		if (gate.owned && !child) {
			return { block: true, reason: "the workflow bridge is not there; tools wait until it is back" };
		}
		if (gate.allowed && !gate.allowed.includes(event.toolName)) {
			const allowed = [...gate.allowed, "workflow"].join(", ");
			return { block: true, reason: `this workflow step may use ${allowed} only, not ${event.toolName}` };
		}
	});

	// --- Recording --------------------------------------------------------------------------------------------------

	function event(event: object) {
		const line = { type: "record", at: Date.now(), event };
		if (recording) tell(line);
		else if (memory.turn !== null && kept.length < KEPT) kept.push(line);
	}

	function record(on: boolean, entry: string | null) {
		recording = on;
		recorded.clear();
		if (on) {
			// What was there before the message is not the turn's.
			for (const { id } of branch()) {
				if (id === entry) break;
				recorded.add(id);
			}
			for (const line of kept) tell(line);
			entries();
		}
		kept = [];
	}

	/** Tells the entries that have settled since the turn began. */
	function entries() {
		if (!recording || !ctx) return;
		for (const entry of branch()) {
			if (recorded.has(entry.id)) continue;
			recorded.add(entry.id);
			const at = new Date(entry.timestamp ?? Date.now()).toISOString();
			tell({ type: "entry", id: entry.id, kind: entry.type, at, content: entry });
		}
	}

	pi.on("turn_start", (turn: any) => event({ type: "turn_start", payload: { turn: turn.turnIndex ?? 0 } }));
	pi.on("turn_end", (turn: any) => {
		event({ type: "turn_end", payload: { turn: turn.turnIndex ?? 0, stopReason: turn.message?.stopReason } });
		entries();
	});
	pi.on("message_start", ({ message }: any) => event({ type: "message_start", payload: { role: message.role } }));
	pi.on("message_update", ({ assistantMessageEvent: part }: any) => {
		if (part?.type === "text_delta") event({ type: "text", payload: { delta: part.delta } });
		else if (part?.type === "thinking_delta") event({ type: "thinking", payload: { delta: part.delta } });
	});
	pi.on("message_end", () => {
		event({ type: "message_end", payload: {} });
		// A message that Pi was given appears with its end.
		if (memory.queued.size > 0) (setTimeout(() => tell({ type: "changed" }), 0) as any).unref?.();
	});
	pi.on("tool_execution_start", (call: any) => {
		event({ type: "tool_start", payload: { callId: call.toolCallId, tool: call.toolName, args: call.args ?? null } });
	});
	pi.on("tool_execution_update", (call: any) => {
		const now = Date.now();
		if (now - (updated.get(call.toolCallId) ?? 0) < 500) return;
		updated.set(call.toolCallId, now);
		event({ type: "tool_update", payload: { callId: call.toolCallId } });
	});
	pi.on("tool_execution_end", (call: any) => {
		event({ type: "tool_end", payload: { callId: call.toolCallId, isError: call.isError === true } });
	});

	// --- What models and people use ---------------------------------------------------------------------------------

	pi.registerTool({
		name: "workflow",
		label: "Workflow",
		description:
			"Durable workflows of this session. submit gives the output of the step that you were asked to carry out; update " +
			"publishes its progress; list, start, status, pause, resume and cancel control runs; answer answers a checkpoint " +
			"(a protected decision is for a person). A started run sends its steps into this conversation by itself.",
		parameters: {
			type: "object",
			properties: {
				action: { type: "string", enum: ACTIONS, description: "What to do" },
				request: { type: "string", description: "submit, update: the request id that the step names" },
				output: { description: "submit: the output of the step, any JSON value" },
				type: { type: "string", description: "update: for example progress" },
				key: { type: "string", description: "update: which one" },
				data: { type: "object", description: "update: its data", additionalProperties: true },
				workflow: { type: "string", description: "start: a name of list, or a path" },
				input: { description: "start: the input, usually {\"task\": …}" },
				run: { type: "string", description: "status, pause, resume, cancel, answer: a run; default this session's" },
				answer: { description: "answer: any JSON value" },
			},
			required: ["action"],
		} as any,
		async execute(callId: string, input: unknown) {
			const text = await ask(callId, input);
			return { content: [{ type: "text", text }], details: {} };
		},
	} as any);

	for (const [name, description] of [
		["workflow", "Start and control durable workflows: /workflow <name> <task>, /workflow help"],
		["piw", "Watch this session's workflow in the viewer"],
	]) {
		pi.registerCommand(name, {
			description,
			handler: async (args, context) => {
				start();
				if (child) tell({ type: "command", name, args });
				else context.ui.notify(problem ?? "the session ended", "error");
			},
		});
	}
	for (const [key, delta] of [["shift+up", -1], ["shift+down", 1]] as const) {
		pi.registerShortcut(key as any, {
			description: "Scroll the workflow widget",
			handler: async () => tell({ type: "scroll", delta }),
		});
	}

	for (const kind of CARDS) {
		pi.registerMessageRenderer(kind, (message: any, options: any, theme: any) => ({
			render: (width: number) => card(message, options?.expanded === true, theme, width),
			invalidate() {},
		}));
	}
}

// --- Text: no line may be wider than the terminal ---------------------------------------------------------------------

function columns(): number {
	return process.stdout.columns || 80;
}

/** Columns that a character takes at most. Too many is safe: a line then ends early. */
function width(character: string): number {
	return (character.codePointAt(0) ?? 0) < 0x250 ? 1 : 2;
}

/** A line without anything that a terminal obeys. */
function plain(line: string): string {
	return line.replace(/\t/g, "    ").replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, "\ufffd");
}

function wrap(line: string, limit: number): string[] {
	const lines: string[] = [];
	let current = "";
	let used = 0;
	for (const character of plain(line)) {
		const more = width(character);
		if (used + more > limit && current !== "") {
			lines.push(current);
			current = "";
			used = 0;
		}
		if (more <= limit) {
			current += character;
			used += more;
		}
	}
	lines.push(current);
	return lines;
}

function clip(line: string, limit: number): string {
	return wrap(line, Math.max(limit, 1))[0];
}

function title(text: string): string {
	return text.split("\n").flatMap((line) => wrap(line, Math.max(columns() - 4, 10))).join("\n");
}

function card(message: any, expanded: boolean, theme: any, limit: number): string[] {
	const paint = (colour: string, line: string) => {
		try {
			return theme.fg(colour, line);
		} catch {
			return line;
		}
	};
	const whole = typeof message.content === "string" ? message.content : "";
	const made = message.details?.card;
	const compact: string[] = Array.isArray(made?.compact) ? made.compact : [whole.split("\n")[0]];
	const lines = compact.map((line, at) => paint(at === 0 ? "accent" : "muted", clip(String(line), limit)));
	// A notice has nothing behind it; its text is what it is about.
	const isOpen = expanded || message.customType === "pi-workflows-notification";
	if (!isOpen) return lines;
	if (expanded) {
		for (const fact of Array.isArray(made?.facts) ? made.facts : []) {
			lines.push(...wrap(String(fact), limit).map((line) => paint("dim", line)));
		}
	}
	for (const line of whole.split("\n")) lines.push(...wrap(line, limit));
	return lines;
}

function isStale(error: unknown): boolean {
	return error instanceof Error && /stale/i.test(error.message);
}

function safely(act: () => void) {
	try {
		act();
	} catch {
		// The session is gone; there is nobody to tell.
	}
}
