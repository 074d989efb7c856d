// A layout as an SVG file.

import type { Layout } from './layout';
import type { Model } from './model';
import { curve, FAINT, FONT, lookOf, type Theme } from './paint';

const MARGIN = 16;

export function svgOf(model: Model, layout: Layout, theme: Theme): string {
  const width = Math.ceil(layout.width + 2 * MARGIN);
  const height = Math.ceil(layout.height + 2 * MARGIN);
  const frames = layout.order.filter((box) => box.open);
  const items = layout.order.filter((box) => !box.open);
  const boxes = (shown: typeof items) =>
    shown.map((box) => {
      const look = lookOf(model, box, theme);
      const dash = look.dashed ? ' stroke-dasharray="5 3"' : '';
      const bar = look.bar ? `<rect x="0" y="0" width="4" height="${box.height}" rx="2" fill="${look.bar}"/>` : '';
      const rows = look.rows.map((row) => `<text x="${row.x}" y="${row.y}" fill="${row.color}"${row.bold ? ' font-weight="600"' : ''}>${escape(cut(row.text, row.width))}</text>`);
      const frame = `<rect width="${box.width}" height="${box.height}" rx="${look.radius}" fill="${look.fill}" stroke="${look.stroke}"${dash}/>`;
      return `<g transform="translate(${round(box.x)} ${round(box.y)})">${frame}${bar}${rows.join('')}</g>`;
    });
  const edges = layout.edges.map(({ points, faint }) => {
    const { start, parts } = curve(points);
    return `<path d="M${start.map(round).join(' ')}${parts.map((part) => `C${part.map(round).join(' ')}`).join('')}"${faint ? ` opacity="${FAINT}"` : ''}/>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="${-MARGIN} ${-MARGIN} ${width} ${height}" font-family="sans-serif" font-size="${FONT}">`,
    `<title>${escape(model.data.title)}</title>`,
    `<rect x="${-MARGIN}" y="${-MARGIN}" width="${width}" height="${height}" fill="${theme.background}"/>`,
    ...boxes(frames),
    `<g fill="none" stroke="${theme.edge}">`,
    ...edges,
    '</g>',
    ...boxes(items),
    '</svg>',
    '',
  ].join('\n');
}

function cut(text: string, width: number): string {
  const most = Math.max(Math.floor(width / (FONT * 0.55)), 4);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function escape(text: string): string {
  return text.replace(/[&<>"]/g, (found) => `&#${found.charCodeAt(0)};`);
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
