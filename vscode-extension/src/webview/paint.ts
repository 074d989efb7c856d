// How a graph looks: the same description is drawn on a canvas and written as SVG.

import { color } from './host';
import { HEAD, type Box, type Edge } from './layout';
import { isGroup, groupOf, type Item, type Model } from './model';

export const FONT = 12;
/** How much is to be seen of an edge that is faint. */
export const FAINT = 0.25;

export interface Theme {
  background: string;
  foreground: string;
  muted: string;
  border: string;
  node: string;
  group: string;
  edge: string;
  focus: string;
  saved: string;
  recomputed: string;
  backward: string;
  input: string;
  parameter: string;
  found: string;
  family: string;
}

export function readTheme(): Theme {
  const foreground = color('editor-foreground', '#cccccc');
  return {
    background: color('editor-background', '#1e1e1e'),
    foreground,
    muted: color('descriptionForeground', foreground),
    border: color('editorWidget-border', '#5a5a5a'),
    node: color('editorWidget-background', '#252526'),
    group: color('sideBar-background', '#252526'),
    edge: color('contrastBorder', color('editorIndentGuide-activeBackground1', color('descriptionForeground', '#808080'))),
    focus: color('focusBorder', '#007fd4'),
    saved: color('fxLsp-saved', '#e6a23c'),
    recomputed: color('fxLsp-recomputed', '#b58bd9'),
    backward: color('fxLsp-backward', '#d16d9e'),
    input: color('charts-green', '#89d185'),
    parameter: color('charts-blue', '#3794ff'),
    found: color('editor-findMatchHighlightBackground', '#ea5c0055'),
    family: color('font-family', 'sans-serif'),
  };
}

/** A box as shapes: a frame, a bar at its left, and rows of text. */
export interface Look {
  fill: string;
  stroke: string;
  dashed: boolean;
  bar: string;
  radius: number;
  rows: { text: string; bold: boolean; color: string; x: number; y: number; width: number }[];
}

export function lookOf(model: Model, box: Box, theme: Theme): Look {
  const { title, detail, mark } = model.lines(box.item);
  const group = isGroup(box.item) ? model.groups[groupOf(box.item)] : undefined;
  const node = isGroup(box.item) ? undefined : model.nodes[box.item];
  const width = box.width - 20;
  const row = (text: string, n: number, bold: boolean, shade: string) => ({ text, bold, color: shade, x: 12, y: 17 + 15 * n, width });
  if (box.open) {
    const head = { text: title, bold: group?.kind === 'call', color: theme.muted, x: 24, y: HEAD - 7, width: box.width - 32 };
    const sign = { text: '▾', bold: false, color: theme.muted, x: 8, y: HEAD - 7, width: 14 };
    return { fill: theme.group, stroke: theme.border, dashed: false, bar: '', radius: 6, rows: [sign, head] };
  }
  const marked = node?.saved != null || (group && mark.startsWith('saves')) ? theme.saved : node?.recomputed || mark ? theme.recomputed : '';
  const rows = [row(group ? `▸ ${title}` : title, 0, true, theme.foreground)];
  if (detail) {
    rows.push(row(detail, 1, false, theme.muted));
  }
  if (mark) {
    rows.push(row(mark, detail ? 2 : 1, false, marked));
  }
  const kinds: Record<string, string> = { placeholder: theme.input, parameter: theme.parameter, buffer: theme.parameter, get_attr: theme.parameter, output: theme.input };
  const stroke = node?.recomputed ? theme.recomputed : node?.backward ? theme.backward : (kinds[node?.kind ?? ''] ?? theme.border);
  return { fill: theme.node, stroke, dashed: node?.recomputed ?? false, bar: marked, radius: node && node.kind !== 'op' ? 12 : 4, rows };
}

/** A line through points that leaves and arrives vertically. */
export function curve(points: [number, number][]): { start: [number, number]; parts: [number, number, number, number, number, number][] } {
  const [start = [0, 0] as [number, number], ...rest] = points;
  let [x, y] = start;
  const parts = rest.map(([nextX, nextY]): [number, number, number, number, number, number] => {
    const bend = (nextY - y) / 2;
    const part: [number, number, number, number, number, number] = [x, y + bend, nextX, nextY - bend, nextX, nextY];
    [x, y] = [nextX, nextY];
    return part;
  });
  return { start, parts };
}

/** Whether an edge is one of the selected item's. */
export function isOf(edge: Edge, item: Item | undefined): boolean {
  return item !== undefined && (edge.from === item || edge.to === item);
}
