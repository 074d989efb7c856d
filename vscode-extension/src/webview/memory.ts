// Memory over forward and backward, and what is kept in between, the largest first.

import type { FailureData, MemoryData, SavedData } from '../data';
import { formatBytes } from '../data';
import { element, onMessages, openPlace, ready } from './host';

const SVG = 'http://www.w3.org/2000/svg';
const [HEIGHT, LEFT, BOTTOM, TOP] = [260, 64, 22, 18];
const ROWS = 400;

const root = document.getElementById('root')!;
let first = true;

function shape(tag: string, attributes: Record<string, string | number>, text = ''): SVGElement {
  const made = document.createElementNS(SVG, tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, String(value)));
  made.textContent = text;
  return made;
}

/** The chart, and a function that marks for how long a value is kept. */
function chart(data: MemoryData, now: HTMLElement): { svg: SVGElement; mark: (saved: SavedData | undefined) => void } {
  const { steps } = data;
  const WIDTH = Math.max(document.documentElement.clientWidth - 32, 320);
  const most = Math.max(1, ...steps.map((step) => step.live));
  const x = (i: number) => LEFT + ((WIDTH - LEFT - 8) * i) / Math.max(steps.length, 1);
  const y = (bytes: number) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * bytes) / most;
  const area = (value: (i: number) => number) =>
    `M${x(0)} ${y(0)}${steps.map((_, i) => `L${x(i)} ${y(value(i))}H${x(i + 1)}`).join('')}L${x(steps.length)} ${y(0)}Z`;
  const svg = shape('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `Memory over ${steps.length} operations, at most ${formatBytes(most)}` });
  for (const part of [0, 0.5, 1]) {
    svg.append(shape('line', { class: 'axis', x1: LEFT, x2: WIDTH, y1: y(most * part), y2: y(most * part), 'stroke-opacity': part ? 0.4 : 1 }));
    svg.append(shape('text', { x: LEFT - 6, y: y(most * part) + 4, 'text-anchor': 'end' }, formatBytes(Math.round(most * part))));
  }
  svg.append(shape('path', { class: 'live', d: area((i) => steps[i]!.live) }), shape('path', { class: 'kept', d: area((i) => steps[i]!.kept) }));
  const border = steps.findIndex((step) => step.stage === 'backward');
  if (border > 0) {
    svg.append(shape('line', { class: 'axis', x1: x(border), x2: x(border), y1: TOP, y2: HEIGHT - BOTTOM }));
    svg.append(shape('text', { x: (LEFT + x(border)) / 2, y: HEIGHT - 6, 'text-anchor': 'middle' }, 'forward'));
    svg.append(shape('text', { x: (x(border) + WIDTH) / 2, y: HEIGHT - 6, 'text-anchor': 'middle' }, 'backward'));
  }
  if (data.peak !== null) {
    svg.append(shape('line', { class: 'peak', x1: x(data.peak + 0.5), x2: x(data.peak + 0.5), y1: TOP - 4, y2: HEIGHT - BOTTOM }));
    svg.append(shape('text', { x: x(data.peak + 0.5), y: TOP - 5, 'text-anchor': data.peak > steps.length / 2 ? 'end' : 'start' }, `peak ${formatBytes(steps[data.peak]!.live)}`));
  }
  const span = shape('rect', { class: 'span', y: TOP, height: HEIGHT - BOTTOM - TOP, width: 0 });
  const cursor = shape('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, x1: -1, x2: -1 });
  svg.append(span, cursor);
  const stepAt = (event: MouseEvent) => {
    const box = svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * WIDTH;
    return Math.min(Math.max(Math.floor(((place - LEFT) / (WIDTH - LEFT - 8)) * steps.length), 0), steps.length - 1);
  };
  svg.addEventListener('mousemove', (event) => {
    const i = stepAt(event);
    const step = steps[i];
    if (step) {
      now.textContent = `${step.stage} · ${step.name}: ${step.spec} · ${formatBytes(step.live)}, of which saved ${formatBytes(step.kept)}${step.made ? ` · allocates ${formatBytes(step.made)}` : ''}`;
      cursor.setAttribute('x1', String(x(i + 0.5)));
      cursor.setAttribute('x2', String(x(i + 0.5)));
    }
  });
  svg.addEventListener('click', (event) => openPlace(steps[stepAt(event)]?.place ?? null));
  const mark = (saved: SavedData | undefined) => {
    const begin = saved?.made ?? 0;
    const end = (saved?.last ?? steps.length - 1) + 1;
    span.setAttribute('x', String(x(begin)));
    span.setAttribute('width', saved ? String(Math.max(x(end) - x(begin), 1)) : '0');
  };
  return { svg, mark };
}

function table(data: MemoryData, mark: (saved: SavedData | undefined) => void): HTMLElement {
  const most = Math.max(1, ...data.saved.map((saved) => saved.bytes));
  const rows = data.saved.slice(0, ROWS).map((saved) => {
    const name = saved.place ? element('button', { type: 'button', title: 'Go to the code' }, saved.name) : element('span', {}, saved.name);
    name.addEventListener('click', () => openPlace(saved.place));
    const size = element('td', { class: 'size' }, element('meter', { min: '0', max: String(most), value: String(saved.bytes), 'aria-hidden': 'true' }), formatBytes(saved.bytes));
    const used = saved.usedBy.slice(0, 3).join(', ') + (saved.usedBy.length > 3 ? ` and ${saved.usedBy.length - 3} more` : '');
    const row = element('tr', {}, element('td', {}, name), element('td', { class: 'spec', title: saved.spec }, saved.spec), element('td', {}, saved.kind), size, element('td', { class: 'used', title: used }, used));
    row.addEventListener('mouseenter', () => mark(saved));
    row.addEventListener('focusin', () => mark(saved));
    row.addEventListener('mouseleave', () => mark(undefined));
    return row;
  });
  const head = element('tr', {}, ...['saved for backward', 'shape', 'kind', 'bytes', 'used by'].map((title) => element('th', { scope: 'col' }, title)));
  return element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows));
}

function show(data: MemoryData | FailureData): void {
  first = false;
  last = data;
  document.body.dataset['state'] = 'failure' in data ? 'failed' : 'ready';
  if ('failure' in data) {
    root.replaceChildren(element('p', { role: 'status' }, data.failure));
    return;
  }
  const now = element('p', { class: 'now', role: 'status' });
  const { svg, mark } = chart(data, now);
  const parts = [data.summary, data.unknown ? `${data.unknown} values have no concrete size and are not counted` : ''];
  root.replaceChildren(
    element('h1', {}, data.title),
    element('p', {}, parts.filter(Boolean).join(' · ')),
    element('p', { class: 'keys' }, 'Excluding parameters and inputs:', element('span', { class: 'kept-key' }, 'saved for backward'), element('span', { class: 'live-key' }, 'everything else')),
    svg,
    now,
    data.saved.length ? table(data, mark) : element('p', {}, 'Nothing is saved for backward.'),
  );
}

let last: MemoryData | FailureData | undefined;
window.addEventListener('resize', () => last && show(last));
onMessages<MemoryData | FailureData>(() => {
  if (first) {
    root.replaceChildren(element('p', { role: 'status' }, 'Tracing …'));
  }
}, show);
ready();
