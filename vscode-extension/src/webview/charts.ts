// The pictures of a benchmark: times, what the card could do, times over sizes, times over runs.

import { areaY, axisX, axisY, barX, dot, gridY, line, pointer, pointerY, ruleX, ruleY, text, tickX, tip, type Markish } from '@observablehq/plot';
import { clockOf, CLOCKS, type Cost, costOf, formatMs, formatRate, machineOf, type Measured, nameOf, type Report, type Run, sizesOf, type Timing, timingOf } from '../measured';
import { draw, logTicks, type Look, type Named, symbolOf } from './look';

const [ROW, SIGN] = [26, 6.6];

/** What is drawn of a variant: its time by the clock that counts. */
interface Point {
  row: Measured;
  timing: Timing;
  x: number;
  y: number;
}

/** A bar for each variant, with the spread of the middle 80 %. */
export function times(look: Look, rows: Measured[], width: number): Named | undefined {
  const timed = pointsOf(rows, (_, timing) => [timing.median, 0]);
  if (timed.length === 0) {
    return undefined;
  }
  const names = timed.map(({ row }) => row.variant);
  const usual = clockOf(timed[0]!.row);
  const label = ({ row, timing }: Point) => `${formatMs(timing.median)}${clockOf(row) === usual ? '' : ` by ${clockOf(row)}`}`;
  const far = Math.max(...timed.map(({ timing }) => Math.max(timing.high, timing.median)));
  const svg = draw(look, {
    width,
    height: names.length * ROW + 56,
    marginLeft: leftOf(names),
    marginRight: 84,
    marginBottom: 36,
    ariaLabel: `Times in ms, ${timed.map((point) => `${point.row.variant} ${label(point)}`).join(', ')}`,
    x: { domain: [0, far], label: `ms ${usual ?? ''}, median per call; lines: the middle 80 %`, labelAnchor: 'left', labelArrow: 'none', ticks: Math.max(Math.floor(width / 110), 2), grid: true },
    y: { domain: names, label: null, tickSize: 0, padding: 0.3 },
    marks: [
      barX(timed, { x: 'x', y: variantOf, fill: (point: Point) => look.of(point.row.variant) }),
      ruleY(timed, { x1: (point: Point) => point.timing.low, x2: (point: Point) => point.timing.high, y: variantOf, stroke: look.foreground, strokeWidth: 1.4 }),
      ...['low', 'high'].map((end) => tickX(timed, { x: (point: Point) => point.timing[end as 'low' | 'high'], y: variantOf, stroke: look.foreground, strokeWidth: 1.4, inset: 4 })),
      text(timed, { x: (point: Point) => Math.max(point.timing.high, point.timing.median), y: variantOf, text: label, textAnchor: 'start', dx: 7, fill: look.foreground, fontVariant: 'tabular-nums' }),
      tip(timed, pointerY({ x: 'x', y: variantOf, title: ({ row, timing }: Point) => said(row, timing), ...tipLook(look) })),
    ],
  });
  return { kind: 'times', title: 'Times', svg };
}

/** How fast each variant moves bytes, or multiplies, against what the card does at best. */
export function roofline(look: Look, report: Report, rows: Measured[], width: number): Named | undefined {
  const { ceilings } = report;
  const costs = new Map(rows.map((row) => [row, costOf(report, row)]));
  const timed = rows.filter((row) => timingOf(row) && costs.get(row)?.bytes);
  if (ceilings === null || timed.length === 0) {
    return undefined;
  }
  const { copy_bytes_per_second: copy, matmul_flops_per_second: products } = ceilings;
  const costOfRow = (row: Measured): Cost => costs.get(row)!;
  if (timed.every((row) => costOfRow(row).flops === 0)) {
    const last = timed.at(-1)!.label; // of a sweep, the largest size says most
    return bandwidths(look, timed.filter((row) => row.label === last), costOfRow, copy, width);
  }
  const points = pointsOf(timed.filter((row) => costOfRow(row).flops > 0), (row, { median }) => [costOfRow(row).flops / costOfRow(row).bytes, (costOfRow(row).flops / median) * 1e3]);
  const ridge = products / copy;
  const [low, high] = [Math.min(ridge, ...points.map(({ x }) => x)) / 6, Math.max(ridge, ...points.map(({ x }) => x)) * 4];
  const [bottom, top] = [Math.min(low * copy, ...points.map(({ y }) => y)) / 2, Math.max(products, ...points.map(({ y }) => y)) * 2.2];
  const roof = [low, ridge, high].map((x) => ({ x, y: Math.min(x * copy, products) }));
  const names = namesOf(points);
  const svg = draw(look, {
    ...frame(width, names, 320),
    marginLeft: 84,
    ariaLabel: `Roofline: ${points.map(({ row, y }) => `${row.variant} ${formatRate(y, 'FLOP')}`).join(', ')}`,
    x: { type: 'log', domain: [low, high] },
    y: { type: 'log', domain: [bottom, top] },
    marks: [
      axisX(logTicks(low, high), { text: short, label: 'operations per byte (minimum of the function)', labelAnchor: 'center', labelArrow: 'none' }),
      ...logY(bottom, top, null, (value) => formatRate(value, 'FLOP')),
      line(roof, { x: 'x', y: 'y', stroke: look.foreground, strokeWidth: 1.6 }),
      text([Math.sqrt(low * ridge)], { x: (x: number) => x, y: (x: number) => x * copy, text: () => `copy: ${formatRate(copy, 'B')}`, textAnchor: 'end', dx: -8, dy: -6, fill: look.foreground }),
      text([high], { x: (x: number) => x, y: () => products, text: () => `products${ceilings.dtype ? ` in ${ceilings.dtype}` : ''}: ${formatRate(products, 'FLOP')}`, textAnchor: 'end', dy: -9, fill: look.foreground }),
      ...dots(look, points),
      ...legend(look, names),
      tip(points, pointer({ x: 'x', y: 'y', title: ({ row, timing, y }: Point) => `${said(row, timing)}\n${formatRate(y, 'FLOP')}`, ...tipLook(look) })),
    ],
  });
  return { kind: 'roofline', title: 'Roofline', svg };
}

/** The roofline of functions that multiply no matrices: bytes per second, and the card's own as a line. */
function bandwidths(look: Look, rows: Measured[], costOfRow: (row: Measured) => Cost, copy: number, width: number): Named {
  const points = pointsOf(rows, (row, { median }) => [(costOfRow(row).bytes / median) * 1e3, 0]);
  const names = points.map(({ row }) => row.variant);
  const far = Math.max(copy, ...points.map(({ x }) => x));
  const svg = draw(look, {
    width,
    height: names.length * ROW + 56,
    marginLeft: leftOf(names),
    marginRight: 52,
    marginBottom: 36,
    ariaLabel: `Bytes per second of ${formatRate(copy, 'B')}: ${points.map(({ row, x }) => `${row.variant} ${formatRate(x, 'B')}`).join(', ')}`,
    x: {
      domain: [0, far],
      label: `minimum bytes of the function; line: a copy on this GPU, ${formatRate(copy, 'B')}`,
      labelAnchor: 'left',
      labelArrow: 'none',
      ticks: Math.max(Math.floor(width / 130), 2),
      tickFormat: (value: number) => (value ? formatRate(value, 'B') : '0'),
    },
    y: { domain: names, label: null, tickSize: 0, padding: 0.3 },
    marks: [
      barX(points, { x: 'x', y: variantOf, fill: (point: Point) => look.of(point.row.variant) }),
      ruleX([copy], { stroke: look.foreground, strokeDasharray: '5 3', strokeWidth: 1.4 }),
      text(points, { y: variantOf, text: ({ x }: Point) => `${Math.round((x / copy) * 100)} %`, frameAnchor: 'right', textAnchor: 'end', dx: 46, fill: look.foreground, fontVariant: 'tabular-nums' }),
      tip(points, pointerY({ x: 'x', y: variantOf, title: ({ row, timing, x }: Point) => `${said(row, timing)}\n${formatRate(x, 'B')}`, ...tipLook(look) })),
    ],
  });
  return { kind: 'roofline', title: 'Share of the GPU’s bandwidth', svg };
}

/** The time of each variant over the sizes of a sweep. */
export function sweep(look: Look, report: Report, rows: Measured[], width: number): Named | undefined {
  const found = sizesOf(report);
  const points = found ? pointsOf(rows, (row, timing) => [found.sizes.get(row.label) ?? 1, timing.median]) : [];
  if (found === undefined || points.length === 0) {
    return undefined;
  }
  const names = namesOf(points);
  const sizes = [...new Set(found.sizes.values())].sort((a, b) => a - b);
  const [low, high] = [Math.min(...points.map(({ timing }) => timing.low)) / 1.2, Math.max(...points.map(({ timing }) => timing.high)) * 1.2];
  const lines = { x: 'x', z: variantOf, sort: 'x' };
  const svg = draw(look, {
    ...frame(width, names, 320),
    ariaLabel: `Times in ms over ${found.name}, from ${sizes[0]} to ${sizes.at(-1)}, of ${names.join(', ')}`,
    x: { type: 'log', base: 2 },
    y: { type: 'log', domain: [low, high] },
    marks: [
      axisX(sizes, { text: (value: number) => value.toLocaleString('en'), label: found.name, tickRotate: sizes.length > 6 ? -30 : 0, labelAnchor: 'center', labelArrow: 'none', labelOffset: 44 }),
      ...logY(low, high, 'ms', short),
      areaY(points, { ...lines, y1: ({ timing }: Point) => timing.low, y2: ({ timing }: Point) => timing.high, fill: (point: Point) => look.of(point.row.variant), fillOpacity: 0.18 }),
      line(points, { ...lines, y: 'y', stroke: (point: Point) => look.of(point.row.variant), strokeWidth: 1.8 }),
      ...dots(look, points),
      ...legend(look, names),
      tip(points, pointer({ x: 'x', y: 'y', title: ({ row, timing }: Point) => `${row.label}\n${said(row, timing)}`, ...tipLook(look) })),
    ],
  });
  return { kind: 'sweep', title: `Over ${found.name}`, svg };
}

interface Past extends Point {
  run: Run;
  ratio: number | undefined;
}

/** The time of each variant over the runs on a host that measured the same. */
export function history(look: Look, runs: Run[], shown: Run, rows: Measured[], width: number): Named | undefined {
  const [first] = rows;
  const key = ({ report }: Run) => JSON.stringify([report.choices, first && costOf(report, first)?.inputs]);
  const same = runs.filter((run) => key(run) === key(shown));
  const points = same.flatMap((run, x): Past[] =>
    pointsOf(run.report.measured.filter((row) => row.label === first?.label && row.what === first.what), (_, { median }) => [x, median]).map((point) => {
      const change = run.changes.find(({ variant, label, what }) => variant === point.row.variant && label === point.row.label && what === point.row.what);
      return { ...point, run, ratio: change?.ratio };
    }),
  );
  if (new Set(points.map(({ x }) => x)).size < 2) {
    return undefined;
  }
  const names = namesOf(points);
  const [low, high] = [Math.min(...points.map(({ y }) => y)) / 1.25, Math.max(...points.map(({ y }) => y)) * 1.25];
  const worse = points.filter(({ ratio }) => ratio !== undefined && ratio > 1);
  const moves = same.flatMap((run, x) => (x > 0 && machineOf(run.report) !== machineOf(same[x - 1]!.report) ? [x - 0.5] : []));
  const step = Math.ceil(same.length / Math.max(Math.floor((width - 200) / 90), 1));
  const svg = draw(look, {
    ...frame(width, names, 250),
    marginBottom: 30,
    ariaLabel: [`Times in ms over ${same.length} runs`, ...worse.map(({ row, ratio }) => `${row.variant} ${ratio?.toFixed(2)} times slower than before`)].join('; '),
    x: { domain: [-0.3, same.length - 0.7], label: null, ticks: same.map((_, i) => i).filter((i) => (same.length - 1 - i) % step === 0), tickFormat: (i: number) => dateOf(same[i]?.report.started ?? 0).slice(5) },
    y: { type: 'log', domain: [low, high] },
    marks: [
      ...logY(low, high, 'ms', short),
      ruleX(moves, { stroke: look.muted, strokeDasharray: '2 3' }),
      line(points, { x: 'x', y: 'y', z: variantOf, stroke: (point: Point) => look.of(point.row.variant), strokeWidth: 1.6 }),
      dot(points, { x: 'x', y: 'y', r: 3.6, symbol: symbolOfPoint, stroke: (point: Point) => look.of(point.row.variant), strokeWidth: 1.6, fill: ({ run, row }: Past) => (run.stale ? look.background : look.of(row.variant)) }),
      text(worse, { x: 'x', y: 'y', text: ({ ratio }: Past) => `▲ ${ratio?.toFixed(2)}×`, dy: -12, fill: look.worse, fontWeight: 600, stroke: look.background, strokeWidth: 3 }),
      ...legend(look, names),
      tip(points, pointer({ x: 'x', y: 'y', title: pastSaid, ...tipLook(look) })),
    ],
  });
  const stale = points.some(({ run }) => run.stale) ? '; hollow: older source' : '';
  return { kind: 'history', title: `History${stale}`, svg };
}

function pastSaid({ run, row, timing, ratio }: Past): string {
  const { machine } = run.report;
  const change = ratio === undefined ? '' : `\n${ratio > 1 ? `${ratio.toFixed(2)}× slower` : `${(1 / ratio).toFixed(2)}× faster`} than before`;
  return `${dateOf(run.report.started)} · ${machineOf(run.report)} · torch ${machine.torch}${run.stale ? ' · older source' : ''}\n${said(row, timing)}${change}`;
}

function pointsOf(rows: Measured[], place: (row: Measured, timing: Timing) => [number, number]): Point[] {
  return rows.flatMap((row) => {
    const timing = timingOf(row);
    const [x, y] = timing ? place(row, timing) : [0, 0];
    return timing ? [{ row, timing, x, y }] : [];
  });
}

/** What the pictures with a legend at the right share. */
function frame(width: number, names: string[], height: number): { width: number; height: number; marginLeft: number; marginRight: number; marginBottom: number } {
  return { width, height: Math.max(height, names.length * 18 + 70), marginLeft: 52, marginRight: leftOf(names) + 22, marginBottom: 52 };
}

/** A logarithmic axis that says what all of its ticks are. */
function logY(low: number, high: number, label: string | null, said: (value: number) => string): Markish[] {
  const ticks = logTicks(low, high);
  return [gridY(ticks), axisY(ticks, { text: said, label, labelArrow: 'none' })];
}

function legend(look: Look, names: string[]): Markish[] {
  return names.flatMap((name, i) => [
    dot([name], { frameAnchor: 'top-right', dx: 20, dy: 4 + i * 18, r: 4, symbol: symbolOf(name), fill: look.of(name) }),
    text([name], { frameAnchor: 'top-right', dx: 30, dy: 4 + i * 18, text: [name], textAnchor: 'start', lineAnchor: 'middle', fill: look.foreground }),
  ]);
}

function dots(look: Look, points: Point[]): Markish[] {
  return namesOf(points).map((name) =>
    dot(points.filter(({ row }) => row.variant === name), { x: 'x', y: 'y', r: 4.5, symbol: symbolOf(name), fill: look.of(name), stroke: look.background, strokeWidth: 0.8 }),
  );
}

function namesOf(points: Point[]): string[] {
  return [...new Set(points.map(({ row }) => row.variant))];
}

function variantOf({ row }: Point): string {
  return row.variant;
}

function symbolOfPoint({ row }: Point): string {
  return symbolOf(row.variant);
}

function leftOf(names: string[]): number {
  return Math.max(...names.map((name) => name.length)) * SIGN + 16;
}

function said(row: Measured, timing: Timing): string {
  const clocks = CLOCKS.flatMap(([clock]) => {
    const found = row.timings[clock];
    return found ? [`${clock} ${formatMs(found.median)} ±${formatMs((found.high - found.low) / 2)} ms`] : [];
  });
  return `${row.variant} · ${nameOf(row.what)}\n${clocks.join('\n')}\n${timing.samples} samples, again ${formatMs(timing.again)} ms`;
}

function short(value: number): string {
  return String(Number(value.toPrecision(3)));
}

export function dateOf(seconds: number): string {
  const date = new Date(seconds * 1000);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

function tipLook(look: Look): { fill: string; stroke: string; fontSize: number; lineHeight: number } {
  return { fill: look.background, stroke: look.muted, fontSize: 11, lineHeight: 1.25 };
}
