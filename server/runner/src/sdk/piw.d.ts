// Declarations of the workflow SDK. Written by `piw types`; replaced when `piw` is updated.

declare module "piw" {
  /** Anything that survives `JSON.stringify` unchanged. */
  export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };

  /** A value, or a promise of it. */
  export type Awaitable<T> = T | PromiseLike<T>;

  // ---- what callbacks get ---------------------------------------------------------------------------------------------------

  /** How a node ended. */
  export type Outcome = "ok" | "failed" | "timed_out" | "cancelled";

  /** An error as it is recorded. */
  export interface ErrorInfo {
    /** Machine class, for example `nodeFailed`. */
    code?: string;
    message: string;
    /** Stack with positions in the source as written. */
    stack?: string;
  }

  /** What a process or action left behind; kept also when it failed. */
  export interface ActionReceipt {
    actionType: "function" | "shell";
    command?: string;
    args?: string[];
    cwd?: string;
    /** Absent when a signal ended the process. */
    exitCode?: number;
    /** Name of the signal that ended the process. */
    signal?: string;
    durationMs?: number;
    /** Captured output, bounded by `maxOutputChars`. */
    stdout?: string;
    stderr?: string;
    stdoutTruncated?: boolean;
    stderrTruncated?: boolean;
  }

  /** The latest result of a node, or of a mounted workflow that was left. */
  export interface NodeResult<Output = any> {
    outcome: Outcome;
    /** `null` unless the outcome is `ok`. */
    output: Output;
    error?: ErrorInfo;
    action?: ActionReceipt;
    /** For a mount: the exit it was left by. */
    exit?: string;
  }

  /** Facts of the run. */
  export interface RunState {
    runId?: string;
    workflowName?: string;
    input: any;
    outputs: Record<string, any>;
    results: Record<string, NodeResult>;
    [key: string]: unknown;
  }

  /** The one argument of most callbacks. Every call gets its own copies: changes to them are not seen elsewhere. */
  export interface NodeContext<Input = any, Outputs = Record<string, any>> {
    /** The workflow's input, as its `input` callback left it. */
    input: Input;
    /** Latest `ok` output of each node by its id; a failed retry removes it. A left mount shows its exit's value. */
    outputs: Outputs;
    /** Latest result of each node, also of those that failed. */
    results: Record<string, NodeResult>;
    state: RunState;
    /** Current settings, when the workflow declares them. */
    settings?: any;
    settingsScopeId?: string;
    settingsChangeNumber?: number;
    /** Aborted when the node is cancelled or its time is up. Pass it on to what waits. */
    signal: AbortSignal;
  }

  /** A published fact about work in progress. The latest of each (type, key) is current. */
  export interface Update {
    /** `[a-z][a-z0-9.-]{0,63}`; `"progress"` has a fixed shape, see {@link ProgressData}. */
    type: string;
    /** `[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}`. */
    key: string;
    /** A JSON object of at most 64 KiB. */
    data: Record<string, unknown>;
  }

  export type ProgressStatus = "pending" | "running" | "waiting" | "blocked" | "completed" | "failed" | "cancelled" | "unknown";

  /** Data of a `progress` update. Viewers show it and estimate when it ends. */
  export interface ProgressData {
    status: ProgressStatus;
    label?: string;
    /** Part of the work; a new phase starts a new estimate. */
    phase?: string;
    completed?: number;
    total?: number;
    /** Name of what is counted. */
    unit?: string;
    /** When the source of these figures last changed them: RFC 3339. */
    sourceUpdatedAt?: string;
    /** When the source itself expects to end: RFC 3339. */
    sourceEstimatedFinishAt?: string;
  }

  /** The engine-made identity of a side effect: the same for every attempt of one visit. Give it to services that deduplicate. */
  export interface EffectInfo {
    key: string;
    type: string;
  }

  /** Context of an action. */
  export interface ActionContext<Input = any, Outputs = Record<string, any>> extends NodeContext<Input, Outputs> {
    effect: EffectInfo;
    /** Publishes an update; rejects when it is malformed or over the rate limit (20 a second, bursts of 100). */
    publishUpdate(update: Update): Promise<void>;
  }

  // ---- nodes ----------------------------------------------------------------------------------------------------------------

  /** Options of every node. */
  export interface NodeOptions<Input = any> {
    /** One line shown beside the node. */
    statusDetail?: string | ((context: NodeContext<Input>) => Awaitable<string>);
    /** Milliseconds of active time; `null` is no limit; default 15 minutes. */
    timeoutMs?: number | null | ((context: NodeContext<Input>) => Awaitable<number | null>);
  }

  const nodeOutput: unique symbol;

  /** A node of a workflow, made by one of the builders. */
  export interface NodeDefinition<Output = any> {
    readonly [nodeOutput]?: Output;
  }

  /** The output type of a node. */
  export type NodeOutput<Node> = Node extends NodeDefinition<infer Output> ? Output : never;

  /** Pure code: no files, processes, network, timers or environment are reachable from `run`. */
  export function compute<Output, Input = any, Outputs = Record<string, any>>(
    options: NodeOptions<Input> & { run: (context: NodeContext<Input, Outputs>) => Awaitable<Output> },
  ): NodeDefinition<Output>;

  const effectBrand: unique symbol;

  /** How a side effect behaves when nobody knows whether it happened. */
  export interface Effect {
    readonly [effectBrand]: true;
    readonly kind: "idempotent" | "observed" | "manual";
    readonly type: string;
  }

  /** Repeating it with the same key is harmless: it is retried. */
  export function idempotentEffect(type: string): Effect;

  /** What `observe` found out; with the node's output, when it was applied. */
  export type Observed = "applied" | "notApplied" | "unknown" | { status: "applied" | "notApplied" | "unknown"; output?: unknown };

  /** `observe` finds out whether it happened. */
  export function observedEffect(type: string, options: { observe: (context: ActionContext) => Awaitable<Observed> }): Effect;

  /** Nothing can tell whether it happened: a person decides. */
  export function manualEffect(type: string): Effect;

  /** Code with a declared side effect. */
  export function action<Output, Input = any, Outputs = Record<string, any>>(
    options: NodeOptions<Input> & { effect: Effect; run: (context: ActionContext<Input, Outputs>) => Awaitable<Output> },
  ): NodeDefinition<Output>;

  /** A process to run. No shell is implied: use `command: "sh", args: ["-c", …]` for one. */
  export interface Command {
    command: string;
    args?: readonly string[];
    /** Relative to the project. */
    cwd?: string;
    /** Added to the inherited environment. */
    env?: Record<string, string | undefined>;
    /** Written to standard input, which is then closed. */
    stdin?: string;
    timeoutMs?: number;
    /** Makes an exit code other than 0 no failure. */
    allowNonZeroExit?: boolean;
    /** Captured characters per stream; default 1,000,000. */
    maxOutputChars?: number;
  }

  /** How a process ended, as `parse` sees it. */
  export interface CommandResult {
    /** `null` when a signal ended the process. */
    exitCode: number | null;
    /** Name of the signal that ended the process, else `null`. */
    signal: string | null;
    stdout: string;
    stderr: string;
    /** Whether the stream lost text to `maxOutputChars`. */
    stdoutTruncated: boolean;
    stderrTruncated: boolean;
    durationMs: number;
  }

  export interface ShellUpdates<Input = any> {
    /** Streams whose lines are looked at; both by default. */
    streams?: readonly ("stdout" | "stderr")[];
    /** Turns a complete line into an update, or several, or nothing. */
    parseLine: (line: string, context: NodeContext<Input> & { stream: "stdout" | "stderr" }) => Awaitable<Update | readonly Update[] | null | undefined | void>;
  }

  /** A process. Its output is that of `parse`, or the result of the process. */
  export function shell<Output = CommandResult, Input = any, Outputs = Record<string, any>>(
    options: NodeOptions<Input> & {
      effect: Effect;
      exec: Command | ((context: NodeContext<Input, Outputs> & { effect: EffectInfo }) => Awaitable<Command>);
      parse?: (result: CommandResult, context: NodeContext<Input, Outputs>) => Awaitable<Output>;
      updates?: ShellUpdates<Input>;
    },
  ): NodeDefinition<Output>;

  /** A durable message to the session that started the run. */
  export function notify<Input = any>(
    options: NodeOptions<Input> & { kind?: "progress" | "final"; message: string | ((context: NodeContext<Input>) => Awaitable<string>) },
  ): NodeDefinition<any>;

  /** Parks the run until someone answers; the answer is the node's output. */
  export function checkpoint<Output = any, Input = any>(
    options: NodeOptions<Input> & {
      summary?: string | ((context: NodeContext<Input>) => Awaitable<string>);
      /** Computes what is shown with the question. */
      run?: (context: NodeContext<Input>) => Awaitable<unknown>;
    },
  ): NodeDefinition<Output>;

  const assistantMessageBrand: unique symbol;
  export interface AssistantMessage {
    readonly [assistantMessageBrand]: true;
  }

  /** Expected output of an agent step that is one visible reply. */
  export function assistantMessage(options?: { maxChars?: number }): AssistantMessage;

  /** A step that a model does. */
  export function agent<Output = any, Input = any>(
    options: NodeOptions<Input> & {
      prompt: string | ((context: NodeContext<Input>) => Awaitable<string>);
      /** Describes the JSON to submit, or `assistantMessage()`. */
      expectedOutput: string | JsonValue | AssistantMessage;
      /** Normalises what was submitted, or throws to tell the model what is wrong. */
      validate?: (output: any, context: NodeContext<Input>) => Awaitable<Output>;
      allowedTools?: readonly string[];
    },
  ): NodeDefinition<Output>;

  /** Choices by name, or names with an explanation each. */
  export type Choices = readonly string[] | Readonly<Record<string, string>>;
  type ChoiceName<C extends Choices> = C extends readonly (infer Name)[] ? Name & string : keyof C & string;

  /** An agent that picks one of several choices. */
  export function decision<const C extends Choices, Input = any>(
    options: NodeOptions<Input> & {
      choices: C;
      question: string | ((context: NodeContext<Input>) => Awaitable<string>);
      /** Field of the output that holds the choice; default `route`. */
      field?: string;
      expectedOutput?: string;
      validate?: (output: any, context: NodeContext<Input>) => unknown;
      allowedTools?: readonly string[];
    },
  ): NodeDefinition<{ route: ChoiceName<C>; [field: string]: any }>;

  /** The edge after a `decision`, with a case for every choice. */
  export function decisionEdge<const C extends Choices>(options: { from: string; choices: C; cases: Record<ChoiceName<C>, string>; field?: string }): Edge;

  // ---- protected decisions --------------------------------------------------------------------------------------------------

  export interface TextInput {
    readonly type: "text";
    readonly prompt?: string;
    readonly maxLength?: number;
    readonly required?: boolean;
  }
  export interface HumanChoice {
    readonly label?: string;
    readonly description?: string;
    readonly input?: TextInput;
  }
  export type HumanChoices = Readonly<Record<string, HumanChoice>>;

  /** Text that a person adds to a choice. */
  export function textInput(options?: string | { prompt?: string; maxLength?: number; required?: boolean }): TextInput;
  /** One choice of a protected decision. */
  export function choice(options?: string | { label?: string; description?: string; input?: TextInput }): HumanChoice;
  /** Names the choices once, for the node and its edge. */
  export function defineHumanChoices<const Names extends string>(choices: Readonly<Record<Names, HumanChoice | string>> | readonly Names[]): Readonly<Record<Names, HumanChoice>>;

  export interface HumanAnswer<Names extends string = string> {
    choice: Names;
    input?: string;
  }

  export interface DecisionRequest {
    title: string;
    /** Machine data: what is decided. */
    subject: JsonValue;
    /** What the person sees. */
    presentation: { schema?: "pi-workflows.decision-presentation.v1"; summary: string; blocks?: readonly JsonValue[] };
  }

  /** A checkpoint that only a verified person, or the declared timeout policy, can answer. */
  export function humanDecision<const C extends HumanChoices, Input = any>(
    options: NodeOptions<Input> & {
      audience: string | readonly string[] | Readonly<Record<string, JsonValue>>;
      choices: C;
      request: DecisionRequest | ((context: NodeContext<Input>) => Awaitable<DecisionRequest>);
      onTimeout?: { afterMs: number; response: HumanAnswer<keyof C & string> };
    },
  ): NodeDefinition<HumanAnswer<keyof C & string>>;

  /** The edge after a `humanDecision`, with a case for every choice. */
  export function humanDecisionEdge<const C extends HumanChoices>(options: { from: string; choices: C; cases: Record<keyof C & string, string> }): Edge;

  // ---- edges ----------------------------------------------------------------------------------------------------------------

  /**
   * Where a node leads; at most one edge a node. `from` is a node id or `<mount>.<exit>`, targets are node ids or mount names.
   * `on` reads a value: `$.a.b` or `$output.a.b` from the accepted output, `$result.outcome` and the like from the result.
   */
  export type Edge = { from: string; to: string } | { from: string; switch: { on: string; cases: Record<string, string> } };
  /** Edges, alone or in (nested) lists. */
  export type Edges = readonly (Edge | readonly Edge[])[];

  /** The edges of a loop: decide, act, return to the decision. */
  export function controlLoop(options: {
    /** Node that decides. */
    decide: string;
    /** Value that it is routed by; default `$.route`. */
    on?: string;
    /** Targets by label, from which the loop returns. A mount returns from its exits: `{to: "m", from: ["m.done"]}`. */
    actions: Record<string, string | { to: string; from?: string | readonly string[] }>;
    /** Targets by label that end the loop. */
    exits?: Record<string, string>;
    /** Where actions return to; the deciding node by default. */
    returnTo?: string;
  }): Edge[];

  // ---- composition ----------------------------------------------------------------------------------------------------------

  const includeBrand: unique symbol;
  /** A mounted workflow. */
  export interface Include<W = any> {
    readonly [includeBrand]: W;
  }

  type InputOf<W> = W extends WorkflowDefinition<infer Input, any> ? Input : any;

  /** Mounts an imported workflow. */
  export function includeWorkflow<W extends WorkflowDefinition<any, any>>(
    child: W,
    options?: { input?: (context: NodeContext) => Awaitable<unknown> },
  ): Include<W>;
  /** Mounts a workflow by name, path or `builtin:<id>`, found before the run starts. */
  export function includeWorkflow(
    child: { workflow: string },
    options?: { input?: (context: NodeContext) => Awaitable<unknown> },
  ): Include;

  /** How a mount was left: one case for each exit. */
  export type IncludedResult<W> = W extends WorkflowDefinition<any, infer Exits>
    ? { [Exit in keyof Exits & string]: { exit: Exit; output: Exits[Exit] } }[keyof Exits & string]
    : { exit: string; output: any };

  /** The result of a left mount: `includedResult<typeof child>(context, "mount")`. */
  export function includedResult<W = any>(context: { results: Record<string, NodeResult> }, mount: string): IncludedResult<W>;

  /** A named successful end: a terminal node, and what its output must be. */
  export type Exit<Output = any> = string | { node: string; validate?: (output: any, context: NodeContext) => Awaitable<Output> };

  // ---- settings -------------------------------------------------------------------------------------------------------------

  const settingsBrand: unique symbol;
  export interface Settings {
    readonly [settingsBrand]: true;
  }
  /** Typed JSON values that can change while a run goes on. */
  export function workflowSettings(options: { initial?: JsonValue | ((context: { input: any }) => Awaitable<JsonValue>); schema?: JsonValue; paths?: JsonValue; [option: string]: unknown }): Settings;
  /** A pure route that is computed again when newer settings arrive first. */
  export function settingsRoute<Output, Input = any>(options: NodeOptions<Input> & { run: (context: NodeContext<Input>) => Awaitable<Output> }): NodeDefinition<Output>;

  // ---- the workflow ---------------------------------------------------------------------------------------------------------

  const workflowBrand: unique symbol;
  /** A workflow: the default export of a workflow file. */
  export interface WorkflowDefinition<Input = any, Exits = Record<string, any>> {
    readonly [workflowBrand]: { input: Input; exits: Exits };
    readonly name: string;
  }

  export interface WorkflowOptions<Input, Exits extends Record<string, any>> {
    name: string;
    /** `import.meta.url`, when other workflows import this one. */
    source?: string;
    /** Identity of the input-and-exit contract. */
    contractId?: string;
    /** Normalises and checks the run's input; throws to refuse the start. */
    input?: (value: any) => Awaitable<Input>;
    title?: string | ((context: { input: Input; workflowName: string }) => Awaitable<string>);
    /** Node id or mount name. */
    startAt: string;
    nodes?: Record<string, NodeDefinition | Include>;
    edges: Edges;
    includes?: Record<string, Include | WorkflowDefinition<any, any>>;
    /** The ends by which including workflows go on. */
    exits?: { [Name in keyof Exits]: Exit<Exits[Name]> };
    settings?: Settings;
    /** Bound of loops; default 100. */
    maxSteps?: number;
  }

  /** Defines a workflow. Shapes are checked at once; the graph is checked when the file is loaded. */
  export function defineWorkflow<Input = any, Exits extends Record<string, any> = {}>(
    options: WorkflowOptions<Input, Exits>,
  ): WorkflowDefinition<Input, Exits>;

  /** Groups workflows that are shipped together. */
  export function defineWorkflowRegistry<const R extends Record<string, WorkflowDefinition<any, any>>>(workflows: R): Readonly<R>;

  // ---- helpers for actions --------------------------------------------------------------------------------------------------

  export interface BatchCommand extends Command {
    /** Found again in the result; the position by default. */
    id?: string;
  }

  export interface BatchResult extends Partial<ActionReceipt> {
    id: string;
    index: number;
    command: string;
    args: string[];
    /** Exit code 0, or any with `allowNonZeroExit`. */
    ok: boolean;
    /** The command was not started: the batch was stopped or cancelled before. */
    skipped?: boolean;
    /** The command could not be run. */
    error?: ErrorInfo;
  }

  export interface BatchOptions {
    commands: readonly (BatchCommand | readonly string[])[];
    /** Commands at a time, 1 to 64; default 4. */
    concurrency?: number;
    signal?: AbortSignal;
    /** Starts no further command after one failed. */
    stopOnFailure?: boolean;
    /** Publishes a progress update after each command. */
    progress?: boolean | string | ({ key?: string } & Partial<Omit<ProgressData, "status" | "completed" | "total">>);
    /** Called after each command, in the order they end. */
    onResult?: (result: BatchResult, index: number) => Awaitable<unknown>;
  }

  /** Runs independent commands, a bounded number at a time. One result a command, in the order given; failures do not reject. */
  export function runCommandBatch(options: BatchOptions): Promise<BatchResult[]>;
  export function runCommandBatch(commands: BatchOptions["commands"], options?: Omit<BatchOptions, "commands">): Promise<BatchResult[]>;
  export function runCommandBatch(context: NodeContext, options: BatchOptions): Promise<BatchResult[]>;

  /** A progress update as data, for `publishUpdate` or `parseLine`. */
  export function progress(key: string, data: ProgressData): Update;
  /** Publishes a progress update from the running action. */
  export function publishProgress(key: string, data: ProgressData): Promise<void>;
}

declare module "@osolmaz/pi-workflows" {
  export * from "piw";
}

declare module "piw/resource-managers" {
  import type { Awaitable, JsonValue } from "piw";

  export interface Condition {
    type: string;
    status: "True" | "False" | "Unknown";
    reason?: string;
    message?: string;
    observedGeneration?: number;
  }

  export interface Resource<Spec = any, Status = any> {
    key: string;
    generation: number;
    spec: Spec;
    status: Status;
    conditions: Condition[];
    finalizers: string[];
    deletionRequested: boolean;
  }

  const resultBrand: unique symbol;
  /** What follows a reconcile. */
  export interface ReconcileResult {
    readonly [resultBrand]: true;
  }

  export interface ReconcileContext<Spec = any, Status = any> {
    resource: Resource<Spec, Status>;
    signal: AbortSignal;
    /** Nothing is left to do until the resource changes. */
    settled(result?: { status?: Status; conditions?: Condition[] }): ReconcileResult;
    /** Again, after the usual delay. */
    requeue(result?: { status?: Status; conditions?: Condition[] }): ReconcileResult;
    /** Again, after this time. */
    requeueAfter(milliseconds: number, result?: { status?: Status; conditions?: Condition[] }): ReconcileResult;
    effects: {
      ensure<T = unknown>(effect: {
        key: string;
        kind: "idempotent" | "observed" | "manual";
        request: JsonValue;
        observe?: () => Awaitable<T | undefined>;
        apply: () => Awaitable<T>;
      }): Promise<T>;
    };
    workflows: {
      ensure(run: { requestKey: string; workflow: string; input?: JsonValue }): Promise<{ runId: string; status: string; output?: unknown }>;
    };
  }

  const managerBrand: unique symbol;
  export interface ResourceManager<Spec = any, Status = any> {
    readonly [managerBrand]: { spec: Spec; status: Status };
    readonly name: string;
  }

  /** Defines a manager that brings one kind of resource to its wanted state. */
  export function defineResourceManager<Spec = any, Status = any>(options: {
    name: string;
    initialStatus?: Status;
    reconcile: (context: ReconcileContext<Spec, Status>) => Awaitable<ReconcileResult>;
  }): ResourceManager<Spec, Status>;
}

declare module "@osolmaz/pi-workflows/resource-managers" {
  export * from "piw/resource-managers";
}
