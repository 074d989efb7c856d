// The tables of a benchmark: what the pictures show, for everyone, and what cannot be drawn.

import { formatBytes } from '../data';
import { CLOCKS, costOf, EAGER, formatMs, formatRate, type KernelTime, type Measured, nameOf, type Report, type Run, speedup, timingOf } from '../measured';
import { element } from './host';

const RIGHT: [boolean | null, string, string][] = [
  [true, 'yes', 'Its results match the function in float64'],
  [false, 'NO', 'Its results do not match the function'],
  [null, '–', 'Its results were not compared'],
];
const MOST_KERNELS = 12;
/** The rows whose warnings are unfolded, which stay so when they are drawn again. */
const unfolded = new Set<string>();

/** A row for each variant, and below it what is wrong with it; warnings are folded away. */
export function table(report: Report, rows: Measured[]): HTMLElement {
  const eager = rows.find((row) => row.variant === EAGER);
  const clocks = CLOCKS.filter(([clock]) => rows.some((row) => row.timings[clock]));
  const has = (value: (row: Measured) => unknown) => rows.some((row) => value(row) != null);
  const columns: { head: string; title: string; cell: (row: Measured) => string | Node }[] = [
    { head: 'right', title: 'Whether its results match the function, computed in float64', cell: rightCell },
    ...clocks.map(([clock, title]) => ({ head: `${clock} ms`, title: `${title}: median per call ± half of the spread of the middle 80 %`, cell: (row: Measured) => timeCell(row.timings[clock]) })),
    { head: '× eager', title: 'Speedup over eager, by the first clock that both have', cell: (row) => speedup(row, eager)?.toFixed(2) ?? '' },
    ...(has((row) => row.bandwidth_fraction) ? [{ head: 'bandwidth', title: 'Share of this GPU’s copy bandwidth, for the minimum bytes of the function', cell: (row: Measured) => fraction(row.bandwidth_fraction) }] : []),
    ...(has((row) => row.rate_fraction) ? [{ head: 'rate', title: 'Share of this GPU’s matrix multiplication rate', cell: (row: Measured) => fraction(row.rate_fraction) }] : []),
    { head: 'setup', title: 'Time to compile, tune and check', cell: (row) => (row.setup_seconds ? `${row.setup_seconds.toFixed(1)} s` : '') },
  ];
  const head = element('tr', {}, element('th', { scope: 'col' }, 'variant'), ...columns.map((column) => element('th', { scope: 'col', class: 'number', title: column.title }, column.head)));
  const body = rows.flatMap((row) => {
    const bad = [...row.verdicts, row.error].filter(Boolean);
    const details = [...bad.map((text) => remark('error', text, columns.length + 1)), ...row.warnings.map((text) => remark('warning', text, columns.length + 1))];
    const warnings = details.slice(bad.length);
    const cells = columns.map((column) => element('td', { class: 'number' }, column.cell(row)));
    const name = element('th', { scope: 'row' }, row.variant, ...(warnings.length ? [' ', toggle(warnings, [row.what, row.label, row.variant].join(' '))] : []));
    return [element('tr', row.right === false ? { class: 'wrong' } : {}, name, ...cells), ...details];
  });
  const floor = floorRow(report, rows[0], clocks.length, columns.length);
  return element('table', {}, element('thead', {}, head), element('tbody', {}, ...body, ...floor));
}

/** The last times on all hosts, a column for each; only times with the same inputs are compared. */
export function across(runs: Run[]): HTMLElement {
  const timed = runs.flatMap((run) => run.report.measured.filter(timingOf).map((row) => ({ run, row, group: groupOf(run.report, row) })));
  const head = element('tr', {}, element('th', { scope: 'col' }, 'ms'), ...runs.map((run) => element('th', { scope: 'col', class: 'number' }, run.host)));
  const body = [...new Set(timed.map(({ group }) => group))].flatMap((group) => {
    const own = timed.filter((one) => one.group === group);
    const rows = [...new Set(own.map(({ row }) => row.variant))].map((variant) => {
      const times = runs.map((run) => own.find((one) => one.run === run && one.row.variant === variant)?.row).map((row) => row && timingOf(row));
      const best = Math.min(...times.map((timing) => timing?.median ?? Infinity));
      const several = times.filter(Boolean).length > 1;
      const cells = times.map((timing) => element('td', { class: `number${several && timing?.median === best ? ' best' : ''}` }, timing ? timeCell(timing) : '–'));
      return element('tr', {}, element('th', { scope: 'row' }, variant), ...cells);
    });
    return [element('tr', { class: 'group' }, element('th', { scope: 'rowgroup', colspan: String(runs.length + 1) }, group)), ...rows];
  });
  return element('table', {}, element('thead', {}, head), element('tbody', {}, ...body));
}

/** What times have to be of to be compared. */
function groupOf(report: Report, row: Measured): string {
  return [nameOf(row.what), row.label, costOf(report, row)?.inputs.join(', '), report.choices].filter(Boolean).join(' · ');
}

/** The kernels of a profile, the longest first. */
export function kernels(found: KernelTime[]): HTMLElement {
  const rows = [...found].sort((a, b) => b.microseconds - a.microseconds).slice(0, MOST_KERNELS);
  const head = element('tr', {}, ...['kernel', 'variant'].map((text) => element('th', { scope: 'col' }, text)), ...['calls', 'µs'].map((text) => element('th', { scope: 'col', class: 'number' }, text)));
  const body = rows.map(({ kernel, variant, calls, microseconds }) =>
    element(
      'tr',
      {},
      element('th', { scope: 'row', class: 'kernel', title: kernel }, kernel),
      element('td', {}, variant),
      ...[String(Number(calls.toPrecision(3))), microseconds.toFixed(1)].map((text) => element('td', { class: 'number' }, text)),
    ),
  );
  const rest = found.length - rows.length;
  return element('div', {}, element('table', {}, element('thead', {}, head), element('tbody', {}, ...body)), ...(rest > 0 ? [element('p', {}, `and ${rest} more`)] : []));
}

function rightCell({ right }: Measured): HTMLElement {
  const [, text, title] = RIGHT.find(([value]) => value === right)!;
  return element('span', { class: right === null ? '' : right ? 'right' : 'bad', title }, text);
}

function timeCell(timing: { median: number; low: number; high: number } | undefined): Node | string {
  return timing ? element('span', {}, formatMs(timing.median), element('small', {}, ` ±${formatMs((timing.high - timing.low) / 2)}`)) : '';
}

function fraction(value: number | null): string {
  return value === null ? '' : value.toFixed(2);
}

function remark(kind: string, words: string, columns: number): HTMLElement {
  return element('tr', { class: `remark ${kind}` }, element('td', { colspan: String(columns) }, words));
}

function toggle(rows: HTMLElement[], key: string): HTMLElement {
  const title = `${rows.length} ${rows.length === 1 ? 'warning' : 'warnings'}`;
  const button = element('button', { type: 'button', class: 'more', title, 'aria-label': title }, `⚠ ${rows.length}`);
  const show = () => {
    button.setAttribute('aria-expanded', String(unfolded.has(key)));
    rows.forEach((row) => (row.hidden = !unfolded.has(key)));
  };
  button.addEventListener('click', () => {
    if (!unfolded.delete(key)) {
      unfolded.add(key);
    }
    show();
  });
  show();
  return button;
}

/** The time that the bytes or the products need on this card, as a last row. */
function floorRow(report: Report, row: Measured | undefined, clocks: number, columns: number): HTMLElement[] {
  const cost = row && costOf(report, row);
  if (report.ceilings === null || cost === undefined || clocks === 0) {
    return [];
  }
  const copying = (cost.bytes / report.ceilings.copy_bytes_per_second) * 1e3;
  const multiplying = (cost.flops / report.ceilings.matmul_flops_per_second) * 1e3;
  const why =
    copying >= multiplying
      ? `what ${formatBytes(cost.bytes)} need at ${formatRate(report.ceilings.copy_bytes_per_second, 'B')}`
      : `time of the products at ${formatRate(report.ceilings.matmul_flops_per_second, 'FLOP')}`;
  const time = element('td', { class: 'number' }, formatMs(Math.max(copying, multiplying)));
  return [element('tr', { class: 'floor' }, element('th', { scope: 'row', colspan: '2' }, why), time, element('td', { colspan: String(Math.max(columns - 2, 1)) }))];
}
