// Graphs in columns that scroll together: one row is chosen in all of them, and what differs from the first is marked.

import type { ComparisonData, FailureData, Place } from '../data';
import { element, onMessages, openPlace, ready } from './host';

const root = document.getElementById('root')!;
let only = false;
let chosen = 0;

interface Row {
  element: HTMLTableRowElement;
  unlike: boolean;
  place: Place | null;
}

function draw(data: ComparisonData): void {
  const rows = data.rows.map((cells): Row => {
    const unlike = cells.some((cell) => cell.unlike);
    const tds = cells.map((cell) => element('td', { title: cell.text, ...(cell.unlike ? { class: 'unlike' } : {}) }, cell.text));
    return { element: element('tr', { class: unlike ? 'unlike' : 'alike' }, ...tds), unlike, place: cells.find((cell) => cell.place)?.place ?? null };
  });
  const differing = rows.filter((row) => row.unlike).length;
  const box = element('input', { type: 'checkbox', id: 'only' });
  box.checked = only;
  const label = element('label', {}, box, ' only these');
  const told = differing ? `${differing.toLocaleString('en')} of ${rows.length.toLocaleString('en')} rows differ from the first column` : 'no difference';
  const head = element('thead', {}, element('tr', {}, ...data.graphs.map((graph) => element('th', { scope: 'col', title: graph.title }, graph.title))));
  const table = element('table', {}, head, element('tbody', {}, ...rows.map((row) => row.element)));
  table.style.minWidth = `${data.graphs.length * 22}em`;
  const scrolled = element('div', { id: 'columns', tabindex: '0', role: 'region', 'aria-label': 'Graphs in columns' }, table);
  root.replaceChildren(element('p', {}, told, ' ', label), scrolled);

  const choose = (at: number) => {
    rows[chosen]?.element.classList.remove('chosen');
    chosen = at;
    rows[at]?.element.classList.add('chosen');
    rows[at]?.element.scrollIntoView({ block: 'nearest' });
  };
  const go = (by: number, wanted: (row: Row) => boolean) => {
    for (let at = chosen + by; at >= 0 && at < rows.length; at += by) {
      if (wanted(rows[at]!)) {
        return choose(at);
      }
    }
  };
  const shown = (row: Row) => !only || row.unlike;
  const keys: Record<string, () => void> = {
    ArrowDown: () => go(1, shown),
    ArrowUp: () => go(-1, shown),
    n: () => go(1, (row) => row.unlike),
    p: () => go(-1, (row) => row.unlike),
    Enter: () => openPlace(rows[chosen]?.place ?? null),
  };
  scrolled.addEventListener('keydown', (event) => {
    const run = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (run) {
      event.preventDefault();
      run();
    }
  });
  rows.forEach((row, i) => {
    row.element.addEventListener('click', () => choose(i));
    row.element.addEventListener('dblclick', () => openPlace(row.place));
  });
  box.addEventListener('change', () => {
    only = box.checked;
    document.body.classList.toggle('only', only);
  });
  choose(Math.min(chosen, rows.length - 1));
  document.body.dataset.rows = String(rows.length);
  document.body.dataset.unlike = String(differing);
  scrolled.focus({ preventScroll: true });
}

onMessages<ComparisonData | FailureData>(
  () => {
    document.body.dataset.state = 'loading';
    if (!root.hasChildNodes()) {
      root.replaceChildren(element('p', {}, 'Tracing …'));
    }
  },
  (data) => {
    if ('failure' in data) {
      root.replaceChildren(element('p', { class: 'failure' }, data.failure));
    } else {
      draw(data);
    }
    document.body.dataset.state = 'failure' in data ? 'failed' : 'ready';
  },
);
ready();
