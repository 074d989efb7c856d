// How pictures of a benchmark look in the present theme: colors, marks, and the frame that all of them share.

import { plot, type Markish, type PlotOptions } from '@observablehq/plot';
import { EAGER, KERNELS, VARIANTS } from '../measured';
import { color } from './host';

export type Symbol = 'circle' | 'square' | 'diamond' | 'triangle' | 'cross' | 'star' | 'wye';

export interface Look {
  foreground: string;
  muted: string;
  background: string;
  worse: string;
  of: (variant: string) => string;
}

export interface Named {
  kind: string;
  title: string;
  svg: SVGSVGElement;
}

export function readLook(): Look {
  const foreground = color('editor-foreground', '#cccccc');
  const background = color('editor-background', '#1e1e1e');
  const muted = mixed(foreground, background, 0.3);
  const [red, blue, green] = [color('charts-red', '#f14c4c'), color('charts-blue', '#3794ff'), color('charts-green', '#89d185')];
  const [orange, yellow, purple] = [color('charts-orange', '#d18616'), color('charts-yellow', '#cca700'), color('charts-purple', '#b180d7')];
  const blues = [blue, mixed(blue, green, 0.45), mixed(blue, foreground, 0.35), mixed(blue, background, 0.4)];
  const known = [mixed(foreground, background, 0.45), orange, yellow, ...blues, red, purple];
  const rivals = [green, mixed(green, yellow, 0.5), mixed(red, purple, 0.6)];
  return {
    foreground,
    muted,
    background,
    worse: color('errorForeground', red),
    of: (variant) => known[VARIANTS.indexOf(variant)] ?? rivals[hash(variant) % rivals.length] ?? green,
  };
}

/** The mark of a variant where several are in one picture, so that color is not all that tells them apart. */
export function symbolOf(variant: string): Symbol {
  const own: Record<string, Symbol> = { [EAGER]: 'square', [KERNELS]: 'circle', 'inductor-kernels': 'diamond', symbolic_trace: 'wye', torchscript: 'cross' };
  return own[variant] ?? (variant.startsWith('compile') ? 'triangle' : 'star');
}

/** A picture. Its colors are those of the theme, written down, so that it is the same as a file. */
export function draw(look: Look, options: PlotOptions & { marks: Markish[]; ariaLabel: string }): SVGSVGElement {
  const made = plot({
    ...options,
    className: 'plot',
    style: { color: look.muted, background: 'none', overflow: 'visible' },
  });
  // Plot brings a <style>, which the content security policy forbids once it is in the document: ours says the same.
  made.querySelectorAll('style').forEach((style) => style.remove());
  made.setAttribute('role', 'img');
  return made as SVGSVGElement;
}

/** A picture as a file. */
export function fileOf(svg: SVGSVGElement, look: Look): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  copy.querySelectorAll('[aria-label="tip"]').forEach((tip) => tip.remove());
  const [width, height] = [copy.getAttribute('width') ?? '600', copy.getAttribute('height') ?? '300'];
  const ground = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  Object.entries({ width, height, fill: look.background }).forEach(([name, value]) => ground.setAttribute(name, value));
  copy.prepend(ground);
  copy.removeAttribute('class');
  copy.removeAttribute('style');
  Object.entries({ color: look.muted, 'font-family': 'sans-serif', 'font-size': '11' }).forEach(([name, value]) => copy.setAttribute(name, value));
  return `${new XMLSerializer().serializeToString(copy)}\n`;
}

/** Values for the ticks of a logarithmic axis: 1, 2 and 5, or even steps where it is short. */
export function logTicks(low: number, high: number): number[] {
  const powers = Array.from({ length: 40 }, (_, i) => i - 20);
  const found = powers.flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power)).filter((value) => value >= low && value <= high);
  const wide = found.filter((value) => /^1/.test(value.toExponential()));
  return wide.length > 4 ? wide : found.length > 2 ? found : [0, 1, 2, 3].map((i) => Number((low + ((high - low) * (i + 0.5)) / 4).toPrecision(3)));
}

function hash(text: string): number {
  return [...text].reduce((sum, sign) => sum + (sign.codePointAt(0) ?? 0), 0);
}

/** A color between two, `part` of the second. */
function mixed(one: string, other: string, part: number): string {
  const [a, b] = [channels(one), channels(other)];
  return `#${a.map((value, i) => Math.round(value + ((b[i] ?? 0) - value) * part).toString(16).padStart(2, '0')).join('')}`;
}

function channels(text: string): number[] {
  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true })!;
  context.fillStyle = text;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}
