// What the server answers, as docs/reference/protocol.md describes it. No imports: the webviews use these types, too.

export interface Position {
  line: number;
  character: number;
}

export interface Range {
  start: Position;
  end: Position;
}

export interface Place {
  uri: string;
  range: Range;
}

/** A command of the server, as a lens or a menu offers it. */
export interface Command {
  title: string;
  command: string;
  arguments?: unknown[];
  tooltip?: string;
}

export interface Status {
  health: 'ok' | 'warning' | 'error';
  quiescent: boolean;
  message: string;
  /** The Python of each workspace folder, and why it is used. */
  interpreters?: { folder: string; path: string; reason: string }[];
  /** The processes that the server has started, and their memory; null if the system does not tell. */
  processes?: { count: number; bytes: number } | null;
}

/** An interpreter that may trace a folder; in a folder that is not trusted, nothing is known of it but its place. */
export interface Interpreter {
  path: string;
  reason: string;
  used: boolean;
  version: string | null;
  torch: string | null;
  problem: string | null;
}

export interface FunctionData {
  name: string;
  uri: string;
  kind: 'function' | 'module' | 'method' | 'graph' | 'step';
  range: Range;
  selectionRange: Range;
  state: 'traced' | 'failed' | 'tracing' | 'unknown';
  stale: boolean;
  message: string;
  stages: { name: string; ops: number }[];
  variants: { name: string; title: string; work: string }[];
  saved: number | null;
  guessed: boolean;
  inputs: { name: string; spec: string; shown?: string; source: string; guessed: boolean }[];
}

export interface PassData {
  name: string;
  uri: string;
  kind: string;
  range: Range;
  selectionRange: Range;
}

export interface FunctionsData {
  functions: FunctionData[];
  passes: PassData[];
  failure: string;
}

export interface PassStep {
  stage: string;
  title: string;
  ops: number;
  change: string;
  note: string;
  unchanged: boolean;
  before: string;
  uri: string;
  diff: string | null;
}

/** What the lines of a function cost; the units are those of the protocol. */
export interface LineCostsData {
  name: string;
  measure: 'time' | 'flops' | 'bytes';
  where: string;
  guessed: boolean;
  lines: LineCostData[];
}

export interface LineCostData {
  uri: string;
  line: number;
  endLine: number;
  share: number;
  savedShare: number;
  flops: number;
  moved: number;
  saved: number;
  live: number;
  times: { forward: number; backward: number } | null;
}

export interface NodeData {
  name: string;
  kind: string;
  label: string;
  spec: string;
  text: string;
  bytes: number | null;
  saved: number | null;
  recomputed: boolean;
  backward: boolean;
  group: number;
  place: Place | null;
}

export interface GroupData {
  title: string;
  kind: 'call' | 'line';
  parent: number;
  round: number;
  place: Place | null;
}

export interface GraphData {
  title: string;
  summary: string;
  stage: string;
  stages: { name: string; ops: number; uri: string }[];
  nodes: NodeData[];
  edges: [number, number][];
  groups: GroupData[];
}

export interface StepData {
  stage: string;
  name: string;
  spec: string;
  live: number;
  kept: number;
  made: number;
  place: Place | null;
}

export interface SavedData {
  name: string;
  spec: string;
  bytes: number;
  kind: string;
  usedBy: string[];
  made: number | null;
  last: number | null;
  place: Place | null;
}

export interface MemoryData {
  title: string;
  summary: string;
  steps: StepData[];
  saved: SavedData[];
  peak: number | null;
  unknown: number;
}

/** Graphs in columns; a row has a cell for each. */
export interface ComparisonData {
  graphs: { title: string; uri: string }[];
  rows: { text: string; unlike: boolean; place: Place | null }[][];
}

export interface FailureData {
  failure: string;
}

/** A number of bytes in binary units: `512 B`, `4.1 KiB`. */
export function formatBytes(size: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = size;
  let power = 0;
  while (value >= (power ? 1023.95 : 1024) && power < units.length - 1) {
    value /= 1024;
    power += 1;
  }
  return `${power ? value.toFixed(1).replace(/\.0$/, '') : value} ${units[power]}`;
}

/** A number of floating-point operations in decimal units: `512 FLOP`, `1.2 GFLOP`. */
export function formatFlops(flops: number): string {
  const units = ['FLOP', 'KFLOP', 'MFLOP', 'GFLOP', 'TFLOP', 'PFLOP'];
  let value = flops;
  let power = 0;
  while (value >= 999.5 && power < units.length - 1) {
    value /= 1000;
    power += 1;
  }
  return `${Number(value.toPrecision(3))} ${units[power]}`;
}
