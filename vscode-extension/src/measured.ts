// What a benchmark found, as `fx_lsp/measured.py` says it: times in ms, sizes in bytes, rates per second. No imports.

export type Clock = 'graph' | 'events' | 'wall';
export type What = 'forward' | 'backward' | 'both';

export interface Timing {
  median: number;
  low: number;
  high: number;
  again: number;
  samples: number;
}

export interface Measured {
  variant: string;
  label: string;
  what: What;
  timings: Partial<Record<Clock, Timing>>;
  right: boolean | null;
  verdicts: string[];
  error: string;
  setup_seconds: number;
  bandwidth_fraction: number | null;
  rate_fraction: number | null;
  warnings: string[];
  crashed: boolean;
}

export interface Machine {
  torch: string;
  triton: string;
  gpu: string;
  driver: string;
  cpu: string;
  threads: number;
  sm_clock: number | null;
  sm_clock_most: number | null;
  temperature: number | null;
}

export interface Ceilings {
  copy_bytes_per_second: number;
  matmul_flops_per_second: number;
  dtype: string;
}

export interface Cost {
  label: string;
  what: What;
  bytes: number;
  flops: number;
  inputs: string[];
}

export interface KernelTime {
  variant: string;
  label: string;
  what: What;
  kernel: string;
  calls: number;
  microseconds: number;
}

export interface Report {
  name: string;
  machine: Machine;
  ceilings: Ceilings | null;
  costs: Cost[];
  measured: Measured[];
  warnings: string[];
  started: number;
  seconds: number;
  choices: string;
  kernels: KernelTime[];
}

export interface Change {
  variant: string;
  label: string;
  what: What;
  clock: Clock;
  ratio: number;
}

export interface Run {
  host: string;
  stale: boolean;
  last: boolean;
  headline: string;
  changes: Change[];
  report: Report;
}

export interface Running {
  host: string;
  text: string;
  done: number;
  total: number;
}

export interface BenchmarkData {
  title: string;
  running: Running[];
  failures: { host: string; message: string; hint: string }[];
  runs: Run[];
}

/** `fxLsp/measuring`: how far a benchmark is. */
export interface Measuring {
  uri: string;
  name: string;
  running: Running[];
}

export interface HostData {
  name: string;
  kind: string;
  reached: string;
  trusted: boolean;
}

/** The answer to `fxLsp.hosts`. */
export interface HostsData {
  path: string;
  problems: string[];
  hosts: HostData[];
}

export const EAGER = 'eager';
export const KERNELS = 'kernels';
export const VARIANTS = [
  EAGER,
  'symbolic_trace',
  'torchscript',
  'compile',
  'compile reduce-overhead',
  'compile max-autotune',
  'compile cudagraphs',
  KERNELS,
  'inductor-kernels',
];
export const WHATS: [What, string][] = [
  ['forward', 'forward'],
  ['backward', 'backward'],
  ['both', 'forward and backward'],
];

/** The clocks, the first of which that two variants have is what they are compared by. */
export const CLOCKS: [Clock, string][] = [
  ['graph', 'in a replayed CUDA graph, without launch overhead'],
  ['events', 'between CUDA events, each call with a cold L2 cache'],
  ['wall', 'host wall-clock time from launch until the device is idle'],
];

export function nameOf(what: What): string {
  return WHATS.find(([known]) => known === what)?.[1] ?? what;
}

/** The clock that counts for a variant, or undefined where it was not timed. */
export function clockOf(row: Measured): Clock | undefined {
  return CLOCKS.find(([clock]) => row.timings[clock])?.[0];
}

/** The time that counts for a variant. */
export function timingOf(row: Measured): Timing | undefined {
  const clock = clockOf(row);
  return clock && row.timings[clock];
}

/** How many times as fast a variant is as another one, by the first clock that both have. */
export function speedup(row: Measured, other: Measured | undefined): number | undefined {
  const clock = CLOCKS.find(([known]) => row.timings[known] && other?.timings[known])?.[0];
  const [own, its] = clock && other ? [row.timings[clock]?.median, other.timings[clock]?.median] : [];
  return own && its !== undefined ? its / own : undefined;
}

export function costOf(report: Report, row: { label: string; what: What }): Cost | undefined {
  return report.costs.find((cost) => cost.label === row.label && cost.what === row.what);
}

/** The size that each label of a sweep stands for (`N=1024`), or undefined where the labels are none of one sweep. */
export function sizesOf(report: Report): { name: string; sizes: Map<string, number> } | undefined {
  const labels = [...new Set(report.measured.map((row) => row.label))];
  const found = labels.map((label) => /^(\w+)=(\d+)$/.exec(label));
  const names = new Set(found.map((match) => match?.[1]));
  const [name] = names;
  return name === undefined || names.size > 1 || labels.length < 2
    ? undefined
    : { name, sizes: new Map(labels.map((label, i) => [label, Number(found[i]?.[2])])) };
}

/** The card, or the processor, that something was measured on. */
export function machineOf({ machine }: Report): string {
  return machine.gpu || `${machine.cpu}, ${machine.threads} ${machine.threads === 1 ? 'thread' : 'threads'}`;
}

/** `0.0431`: the digits that count of some ms. */
export function formatMs(value: number): string {
  return value >= 100 ? value.toFixed(1) : value >= 10 ? value.toFixed(2) : value >= 1 ? value.toFixed(3) : value.toFixed(4);
}

/** `4.25 TB/s` of 4.25e12 and `B`. */
export function formatRate(value: number, unit: string): string {
  const [prefix, factor] = ([['P', 1e15], ['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3]] as const).find(([, power]) => value >= power) ?? ['', 1];
  return `${Number((value / factor).toPrecision(3))} ${prefix}${unit}/s`;
}
