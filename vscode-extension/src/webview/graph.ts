// The picture of a graph: what the user does with it.

import type { FailureData, GraphData } from '../data';
import { formatBytes } from '../data';
import { Canvas } from './canvas';
import { element, onMessages, onTheme, openPlace, ready, saveSvg, showView } from './host';
import { Layouter, type Box, type Layout } from './layout';
import { groupOf, isGroup, itemOf, Model, type Item } from './model';
import { FONT, readTheme, type Theme } from './paint';
import { svgOf } from './svg';

const ZOOM = 1.2;

const stages = element('select', { title: 'Stage', 'aria-label': 'Stage' });
const search = element('input', { type: 'search', placeholder: 'Search operations, names, shapes, lines', 'aria-label': 'Search' });
const hits = element('span', { class: 'hits', role: 'status' });
const view = element('canvas', { tabindex: '0', role: 'application', 'aria-describedby': 'keys', 'aria-label': 'Graph' });
const map = element('canvas', { class: 'map', 'aria-hidden': 'true' });
const details = element('aside', { 'aria-live': 'polite' });
const message = element('p', { class: 'message', role: 'status' }, 'Tracing …');
const keys = element('p', { id: 'keys', class: 'hidden' }, 'Arrow keys go along edges and between neighbours, Enter goes to the code, Space opens and closes groups, slash searches, plus and minus zoom, 0 fits.');
const legend = element(
  'div',
  { class: 'legend' },
  element('span', { class: 'saved' }, 'saved for backward'),
  element('span', { class: 'recomputed' }, 'recomputed'),
  element('span', { class: 'backward' }, 'backward'),
  element('span', { class: 'parameter' }, 'parameter'),
  element('span', { class: 'input' }, 'input, output'),
);
const canvas = new Canvas(view, map);

let theme: Theme = readTheme();
let model: Model | undefined;
let layout: Layout | undefined;
let layouter: Promise<Layouter> | undefined;
let selected: Item | undefined;
let found: number[] = [];
let hit = -1;
let turn = 0;
let started = false;

function button(label: string, title: string, run: () => void): HTMLButtonElement {
  const made = element('button', { type: 'button', title, 'aria-label': title }, label);
  made.addEventListener('click', run);
  return made;
}

function measured(): (text: string, bold: boolean) => number {
  const context = element('canvas').getContext('2d')!;
  const widths = new Map<string, number>();
  return (text, bold) => {
    const key = `${bold}${text}`;
    let width = widths.get(key);
    if (width === undefined) {
      context.font = `${bold ? '600 ' : ''}${FONT}px ${theme.family}`;
      width = context.measureText(text).width;
      widths.set(key, width);
    }
    return width;
  };
}

/** Lays the graph out anew; `kept` stays where it is on the screen. */
async function update(kept?: Item): Promise<void> {
  if (!model) {
    return;
  }
  const mine = (turn += 1);
  const shown = model;
  layouter ??= Layouter.create(document.body.dataset['worker'] ?? '', measured());
  message.textContent = 'Laying out …';
  const made = await (await layouter).layout(shown);
  if (mine !== turn) {
    return;
  }
  const before = kept === undefined ? undefined : layout?.boxes.get(kept);
  layout = made;
  message.textContent = '';
  canvas.keep(before, kept === undefined ? undefined : made.boxes.get(kept));
  redraw();
  if (!started) {
    canvas.start();
    started = true;
    takeFocus();
  }
  Object.assign(document.body.dataset, { state: 'ready', title: shown.data.title, nodes: shown.nodes.length, shown: made.boxes.size });
}

/** The picture has the focus of the panel where nothing else in it has. */
function takeFocus(): void {
  if (document.hasFocus() && document.activeElement === document.body) {
    view.focus();
  }
}

function redraw(): void {
  if (model && layout) {
    const paths = new Set(found.map((node) => model!.path(node).item));
    canvas.show({ model, layout, theme, selected, found: paths });
  }
}

function select(item: Item | undefined, center = false): void {
  selected = item;
  const box = item === undefined ? undefined : layout?.boxes.get(item);
  if (center && box) {
    canvas.center(box);
  }
  describe(item);
  redraw();
  document.body.dataset['selected'] = item === undefined || !model ? '' : model.lines(item).title;
  document.body.dataset['at'] = box ? canvas.middle(box).map(Math.round).join(',') : '';
}

function describe(item: Item | undefined): void {
  details.replaceChildren();
  if (item === undefined || !model) {
    return;
  }
  const { title, detail, mark } = model.lines(item);
  const group = isGroup(item) ? model.groups[groupOf(item)] : undefined;
  const node = isGroup(item) ? undefined : model.nodes[item];
  const place = group?.place ?? node?.place ?? null;
  details.append(element('strong', {}, node?.name ?? title));
  if (node) {
    details.append(element('code', {}, node.text));
    const facts = [node.kind === 'output' ? '' : node.bytes === null ? 'unknown size' : formatBytes(node.bytes), mark, node.backward ? 'backward' : ''];
    details.append(element('span', {}, facts.filter(Boolean).join(' · ')));
  } else {
    details.append(element('span', {}, [detail, mark].filter(Boolean).join(' · ')));
  }
  if (place) {
    const file = decodeURIComponent(place.uri.split('/').pop() ?? '');
    details.append(button(`${file}:${place.range.start.line + 1}`, 'Go to the code', () => openPlace(place)));
  }
}

function goToCode(item: Item): void {
  if (model) {
    openPlace(isGroup(item) ? (model.groups[groupOf(item)]?.place ?? null) : (model.nodes[item]?.place ?? null));
  }
}

/** Opens or closes a group. What is selected then is to be seen: the group, or the first of what it holds. */
async function toggle(item: Item, enter = false): Promise<void> {
  if (model && isGroup(item)) {
    model.toggle(groupOf(item));
    await update(item);
    const inside = enter && model.open.has(groupOf(item)) ? layout?.order.find((box) => !box.open && holds(item, box.item)) : undefined;
    select(inside?.item ?? item);
  }
}

function holds(group: Item, item: Item): boolean {
  const parent = isGroup(item) ? itemOf(model!.groups[groupOf(item)]!.parent) : itemOf(model!.groupsAround(item).at(-1) ?? -1);
  return isGroup(parent) && (parent === group || holds(group, parent));
}

/** Selects a node, with everything open that hides it. */
async function reveal(node: number): Promise<void> {
  if (model && model.path(node).item !== node) {
    model.reveal(node);
    await update();
  }
  select(node, true);
}

async function nextHit(by: number): Promise<void> {
  if (found.length) {
    hit = (hit + by + found.length) % found.length;
    hits.textContent = `${hit + 1} of ${found.length}`;
    await reveal(found[hit]!);
  }
}

/** The nearest box in a direction: along an edge up and down, beside it left and right; at first that of the first node. */
function neighbour(item: Item, key: string): Item | undefined {
  const here = layout?.boxes.get(item);
  if (!layout || !here) {
    return model?.nodes.length ? model.path(0).item : undefined;
  }
  const along = key === 'ArrowUp' ? layout.edges.filter((edge) => edge.to === item).map((edge) => edge.from) : key === 'ArrowDown' ? layout.edges.filter((edge) => edge.from === item).map((edge) => edge.to) : [];
  const beside = layout.order.filter((box) => !box.open && box.item !== item && box.y < here.y + here.height && box.y + box.height > here.y && (key === 'ArrowLeft' ? box.x < here.x : box.x > here.x));
  const boxes = key === 'ArrowUp' || key === 'ArrowDown' ? along.flatMap((other) => layout!.boxes.get(other) ?? []) : beside;
  const distance = (box: Box) => Math.hypot(box.x - here.x, box.y - here.y);
  return boxes.sort((a, b) => distance(a) - distance(b))[0]?.item;
}

function show(data: GraphData | FailureData): void {
  if ('failure' in data) {
    message.textContent = data.failure;
    document.body.dataset['state'] = 'failed';
    return;
  }
  const name = selected === undefined || isGroup(selected) ? undefined : model?.nodes[selected]?.name;
  const first = !model || model.data.title !== data.title;
  started &&= !first;
  const before = first ? undefined : model;
  model = new Model(data);
  if (before) {
    model.follow(before);
  }
  layout = undefined;
  void layouter?.then((known) => known.forget());
  stages.replaceChildren(...data.stages.map((stage) => element('option', { value: stage.uri, ...(stage.name === data.stage ? { selected: '' } : {}) }, `${stage.name} · ${stage.ops.toLocaleString('en')} ops`)));
  const again = name === undefined ? -1 : data.nodes.findIndex((node) => node.name === name);
  selected = again >= 0 ? model.path(again).item : undefined;
  find();
  void update().then(() => select(selected));
}

function find(): void {
  found = model?.find(search.value) ?? [];
  hit = -1;
  hits.textContent = search.value.trim() === '' ? '' : `${found.length.toLocaleString('en')} found`;
  redraw();
}

function listen(): void {
  window.addEventListener('focus', takeFocus);
  stages.addEventListener('change', () => showView(stages.value));
  search.addEventListener('input', find);
  search.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') {
      void nextHit(event.shiftKey ? -1 : 1);
    } else if (event.key === 'Escape') {
      view.focus();
    }
  });
  let drag: { x: number; y: number; moved: boolean } | undefined;
  view.addEventListener('pointerdown', (event) => {
    drag = { x: event.offsetX, y: event.offsetY, moved: false };
    view.setPointerCapture(event.pointerId);
  });
  view.addEventListener('pointermove', (event) => {
    if (drag && (drag.moved || Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > 3)) {
      canvas.pan(event.offsetX - drag.x, event.offsetY - drag.y);
      drag = { x: event.offsetX, y: event.offsetY, moved: true };
    }
    view.style.cursor = drag?.moved ? 'grabbing' : canvas.at(event.offsetX, event.offsetY) ? 'pointer' : 'grab';
  });
  view.addEventListener('pointerup', (event) => {
    const box = drag && !drag.moved ? canvas.at(event.offsetX, event.offsetY) : undefined;
    drag = undefined;
    if (box && isGroup(box.item) && (!box.open || event.offsetY - canvas.middle(box)[1] < 12)) {
      void toggle(box.item);
    } else if (box) {
      select(box.item);
      goToCode(box.item);
    }
  });
  view.addEventListener(
    'wheel',
    (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) {
        canvas.zoom(Math.exp(-event.deltaY / 200), event.offsetX, event.offsetY);
      } else {
        canvas.pan(event.shiftKey ? -event.deltaY : -event.deltaX, event.shiftKey ? 0 : -event.deltaY);
      }
    },
    { passive: false },
  );
  view.addEventListener('keydown', (event) => void key(event));
  map.addEventListener('pointerdown', (event) => map.setPointerCapture(event.pointerId));
  map.addEventListener('pointermove', (event) => event.buttons && canvas.goTo(event.offsetX, event.offsetY));
  map.addEventListener('pointerup', (event) => canvas.goTo(event.offsetX, event.offsetY));
}

async function key(event: KeyboardEvent): Promise<void> {
  const actions: Record<string, () => unknown> = {
    '+': () => canvas.zoom(ZOOM),
    '=': () => canvas.zoom(ZOOM),
    '-': () => canvas.zoom(1 / ZOOM),
    '0': () => canvas.fit(),
    '/': () => search.focus(),
    Enter: () => selected !== undefined && goToCode(selected),
    ' ': () => selected !== undefined && toggle(isGroup(selected) ? selected : itemOf(model?.groupsAround(selected).at(-1) ?? -1), true),
    n: () => nextHit(1),
    N: () => nextHit(-1),
  };
  if (event.key.startsWith('Arrow')) {
    event.preventDefault();
    const next = neighbour(selected ?? Number.NaN, event.key);
    if (next !== undefined) {
      select(next, true);
    }
  } else if (actions[event.key] && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    await actions[event.key]!();
  }
}

function save(): void {
  if (model && layout) {
    saveSvg(svgOf(model, layout, theme), model.data.title.replace(' · ', '.'));
  }
}

const all = (run: () => void) => () => {
  run();
  void update().then(() => canvas.fit());
};
document.getElementById('root')?.append(
  element(
    'header',
    { role: 'toolbar', 'aria-label': 'Graph' },
    stages,
    search,
    hits,
    element('span', { class: 'space' }),
    button('Open all', 'Open every group', all(() => model?.openAll())),
    button('Close all', 'Close every group', all(() => model?.closeAll())),
    button('−', 'Zoom out', () => canvas.zoom(1 / ZOOM)),
    button('+', 'Zoom in', () => canvas.zoom(ZOOM)),
    button('Fit', 'Show everything', () => canvas.fit()),
    button('SVG', 'Save as SVG', save),
  ),
  legend,
  element('section', {}, view, map, details, message, keys),
);
onTheme(() => {
  theme = readTheme();
  redraw();
});
listen();
onMessages<GraphData | FailureData>(() => {
  if (!model) {
    message.textContent = 'Tracing …';
  }
}, show);
ready();
