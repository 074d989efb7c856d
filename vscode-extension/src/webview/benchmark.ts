// What was measured of a function on each host: tables, pictures, and what is being measured.

import type { FailureData } from '../data';
import { formatBytes } from '../data';
import { type BenchmarkData, CLOCKS, costOf, machineOf, type Measured, nameOf, type Run, type Running, sizesOf, WHATS, type What } from '../measured';
import { dateOf, history, roofline, sweep, times } from './charts';
import { element, onMessages, onTheme, ready, run as runCommand, saveSvg, showText } from './host';
import { fileOf, type Look, type Named, readLook } from './look';
import { across, kernels, table } from './rows';

const ALL = 'all hosts';
const [GAP, WIDE, NARROW] = [24, 860, 340];

const root = document.getElementById('root')!;
const progress = element('section', { class: 'progress', 'aria-label': 'Progress' });
const said = element('p', { class: 'hidden', role: 'status' });
let last: BenchmarkData | undefined;
let host = '';
let label = '';

function button(words: string, title: string, press: () => void): HTMLButtonElement {
  const made = element('button', { type: 'button', title }, words);
  made.addEventListener('click', press);
  return made;
}

const measure = () => button(last?.runs.length ? 'Measure again…' : 'Benchmark…', 'Choose hosts and measure', () => runCommand('fx-lsp.bench'));
const options = () => button('With options…', 'Choose what to measure, variants, inputs, a sweep and kernel options', () => runCommand('fx-lsp.benchWithOptions'));

/** What is being measured now, which changes far more often than the rest. */
function showRunning(running: Running[]): void {
  document.body.dataset['running'] = String(running.length);
  const rows = running.map((now) => {
    const bar = element('progress', { max: String(now.total || 1), 'aria-label': `Benchmark on ${now.host}` });
    if (now.total) {
      bar.value = now.done;
    }
    return element('div', { class: 'now' }, element('strong', {}, now.host), bar, element('span', { title: now.text }, now.text), now.total ? element('small', {}, `${now.done} of ${now.total}`) : '');
  });
  const known = progress.querySelector('button');
  const stop = known ?? button('Cancel', 'Stop the benchmark; no processes stay on the hosts', () => runCommand('fx-lsp.stopBench'));
  progress.hidden = running.length === 0;
  if (running.length === 0) {
    progress.replaceChildren();
  } else {
    progress.querySelectorAll('.now').forEach((row) => row.remove()); // the button stays, and with it the focus
    progress.prepend(...rows);
    progress.append(...(known ? [] : [stop]));
  }
}

function tabs(names: string[]): HTMLElement {
  const list = element('div', { role: 'tablist', 'aria-label': 'Hosts' });
  names.forEach((name, i) => {
    const chosen = name === host;
    const tab = element('button', { type: 'button', role: 'tab', 'aria-selected': String(chosen), tabindex: chosen ? '0' : '-1' }, name);
    const go = (to: string | undefined) => {
      host = to ?? name;
      show();
      root.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]')?.focus();
    };
    tab.addEventListener('click', () => go(name));
    tab.addEventListener('keydown', ({ key }) => {
      const by = key === 'ArrowRight' ? 1 : key === 'ArrowLeft' ? -1 : 0;
      if (by) {
        go(names[(i + by + names.length) % names.length]);
      }
    });
    list.append(tab);
  });
  return list;
}

function figure(found: Named | undefined, name: string, look: Look): HTMLElement[] {
  if (found === undefined) {
    return [];
  }
  const save = button('SVG', `Save the picture “${found.title}”`, () => saveSvg(fileOf(found.svg, look), name));
  return [element('figure', { 'data-kind': found.kind }, element('figcaption', {}, element('span', {}, found.title), save), found.svg)];
}

function about({ report }: Run): HTMLElement {
  const { machine, ceilings } = report;
  const parts = [
    machineOf(report),
    `torch ${machine.torch}`,
    machine.triton && `triton ${machine.triton}`,
    machine.driver && `driver ${machine.driver}`,
    machine.sm_clock && `${machine.sm_clock}${machine.sm_clock_most ? ` of ${machine.sm_clock_most}` : ''} MHz`,
    machine.temperature !== null && `${machine.temperature} °C`,
    ceilings && `copies at ${(ceilings.copy_bytes_per_second / 1e12).toFixed(2)} TB/s, multiplies ${ceilings.dtype} at ${(ceilings.matmul_flops_per_second / 1e12).toFixed(0)} TFLOP/s`,
    report.choices,
    `${dateOf(report.started)}, in ${report.seconds.toFixed(0)} s`,
  ];
  return element('p', { class: 'about' }, parts.filter(Boolean).join(' · '));
}

function grid(): { columns: number; width: number } {
  const columns = root.clientWidth >= WIDE ? 2 : 1;
  return { columns, width: Math.max(Math.floor((root.clientWidth - GAP * (columns - 1)) / columns), NARROW) };
}

/** Everything about forward, or backward, or both, of one run. */
function part(look: Look, run: Run, what: What, all: Run[]): HTMLElement {
  const { report } = run;
  const every = report.measured.filter((row) => row.what === what);
  const rows = every.filter((row) => row.label === label);
  const cost = rows[0] && costOf(report, rows[0]);
  const facts = cost ? [cost.inputs.join(', '), formatBytes(cost.bytes), cost.flops ? `${Number((cost.flops / 1e9).toPrecision(3))} GFLOP` : ''] : [];
  const { columns, width } = grid();
  const name = (kind: string) => [last?.title, run.host, what, kind].filter(Boolean).join('.');
  const found: (Named | undefined)[] = [times(look, rows, width), roofline(look, report, sizesOf(report) ? every : rows, width), sweep(look, report, every, width), history(look, all, run, rows, width)];
  const profile = report.kernels.filter((kernel) => kernel.what === what && kernel.label === label);
  return element(
    'section',
    { 'data-what': what },
    element('h2', {}, [nameOf(what), label].filter(Boolean).join(' · '), element('small', {}, facts.filter(Boolean).join(' · '))),
    element('div', { class: 'scroll' }, table(report, rows)),
    element('div', { class: `figures of-${columns}` }, ...found.flatMap((one) => figure(one, name(one?.kind ?? ''), look))),
    ...(profile.length ? [element('h3', {}, 'Kernels, by the profiler'), element('div', { class: 'scroll' }, kernels(profile))] : []),
  );
}

function sizes(run: Run): HTMLElement[] {
  const labels = [...new Set(run.report.measured.map((row) => row.label))];
  label = labels.includes(label) ? label : (labels.at(-1) ?? '');
  if (labels.length < 2) {
    return [];
  }
  const select = element('select', { 'aria-label': 'Size' }, ...labels.map((one) => element('option', one === label ? { value: one, selected: '' } : { value: one }, one)));
  select.addEventListener('change', () => {
    label = select.value;
    show();
    root.querySelector('select')?.focus();
  });
  return [element('label', {}, 'Table and times of ', select)];
}

/** What became slower than in the run before, by more than the noise. */
function slower({ changes }: Run): HTMLElement[] {
  const worse = changes.filter(({ ratio }) => ratio > 1);
  const text = worse.map((change) => `${[change.variant, nameOf(change.what), change.label].filter(Boolean).join(', ')}: ${change.ratio.toFixed(2)}×`).join('; ');
  return worse.length ? [element('p', { class: 'note worse' }, `Slower than in the previous run, by more than the noise: ${text}.`)] : [];
}

function ofHost(look: Look, run: Run, all: Run[]): HTMLElement {
  const shown = element('div', run.stale ? { class: 'stale' } : {});
  const notes = run.stale ? [element('p', { class: 'note', role: 'status' }, 'The source has changed since this measurement. ', measure())] : [];
  const choose = sizes(run);
  const parts = WHATS.filter(([what]) => run.report.measured.some((row) => row.what === what)).map(([what]) => part(look, run, what, all));
  shown.append(...choose, ...parts);
  const clocks = CLOCKS.filter(([clock]) => run.report.measured.some((row: Measured) => row.timings[clock])).map(([clock, text]) => `${clock}: ${text}`);
  return element(
    'div',
    { role: 'tabpanel', 'aria-label': run.host },
    element('p', { class: 'headline' }, run.headline),
    about(run),
    ...notes,
    ...slower(run),
    ...run.report.warnings.map((text) => element('p', { class: 'note' }, text)),
    shown,
    element('p', { class: 'about' }, `Milliseconds per call: median ± half of the spread of the middle 80 %. ${clocks.join('; ')}.`),
  );
}

function onAll(look: Look, runs: Run[]): HTMLElement {
  const stale = runs.filter((run) => run.stale).map((run) => run.host);
  const note = stale.length ? [element('p', { class: 'note', role: 'status' }, `The source has changed since the measurement on ${stale.join(', ')}. `, measure())] : [];
  const { columns, width } = grid();
  const pictures = runs.map((run) => {
    const [what] = WHATS.find(([known]) => run.report.measured.some((row) => row.what === known)) ?? ['forward'];
    const of = run.report.measured.filter((row) => row.what === what);
    const found = times(look, of.filter((row) => row.label === of.at(-1)?.label), width);
    return figure(found && { ...found, title: `${run.host} · ${nameOf(what as What)}` }, `${last?.title}.${run.host}.times`, look);
  });
  return element('div', { role: 'tabpanel', 'aria-label': ALL }, ...note, element('div', { class: 'scroll' }, across(runs)), element('div', { class: `figures of-${columns}` }, ...pictures.flat()));
}

function show(): void {
  if (last === undefined) {
    return;
  }
  const data = last;
  const look = readLook();
  const latest = data.runs.filter((run) => run.last);
  const names = latest.map((run) => run.host);
  host = names.includes(host) || (host === ALL && names.length > 1) ? host : (names.at(-1) ?? '');
  const shown = latest.find((run) => run.host === host);
  const buttons = [measure(), options(), ...(latest.length ? [button('As text', 'Open this page as a text document', showText)] : [])];
  const header = element('header', {}, element('h1', {}, data.title), element('span', { class: 'space' }), ...buttons);
  const place = document.documentElement.scrollTop;
  const failures = data.failures.map((failed) => element('p', { class: 'note worse', role: 'status' }, `Not measured on ${failed.host}: ${failed.message} ${failed.hint}`.trim()));
  root.replaceChildren(header, progress, said, ...failures);
  if (latest.length === 0 && failures.length === 0) {
    const what = 'its kernels are checked against float64 and timed against eager, torch.compile and more, on this machine or on one of your GPU hosts.';
    root.append(element('p', { class: 'empty' }, `This function has not been measured yet: ${what}`));
  }
  if (names.length > 1) {
    root.append(tabs([...names, ALL]));
  }
  if (shown || host === ALL) {
    root.append(shown ? ofHost(look, shown, data.runs.filter((run) => run.host === host)) : onAll(look, latest));
  }
  document.documentElement.scrollTop = place;
  document.body.dataset['stale'] = String(shown?.stale ?? false);
  document.body.dataset['runs'] = String(data.runs.length);
  document.body.dataset['state'] = 'ready';
}

function take(data: BenchmarkData | FailureData): void {
  if ('failure' in data) {
    document.body.dataset['state'] = 'failed';
    root.replaceChildren(element('p', { role: 'status' }, data.failure));
    return;
  }
  const known = last;
  last = data;
  showRunning(data.running);
  const newest = data.runs.at(-1);
  const measured = known !== undefined && newest !== undefined && data.runs.length > known.runs.length;
  host = measured ? newest.host : host;
  if (JSON.stringify([known?.runs, known?.failures]) !== JSON.stringify([data.runs, data.failures])) {
    show(); // not after every edit: what its reader points at would be gone
  }
  if (measured) {
    said.textContent = `Measured on ${host}: ${newest.headline}`;
  }
}

let frame = 0;
const again = () => {
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(show);
};
window.addEventListener('resize', again);
onTheme(again);
onMessages<BenchmarkData | FailureData, Running[]>(() => undefined, take, showRunning);
ready();
