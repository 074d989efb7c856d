// The picture on a canvas: pan, zoom, what is under the pointer, and a small map of all of it.

import type { Box, Layout } from './layout';
import type { Item, Model } from './model';
import { curve, FAINT, FONT, isOf, lookOf, type Theme } from './paint';

const READABLE = 0.45;
const MARGIN = 24;

export interface Scene {
  model: Model;
  layout: Layout;
  theme: Theme;
  selected: Item | undefined;
  found: Set<Item>;
}

export class Canvas {
  scale = 1;
  private x = 0;
  private y = 0;
  private scene: Scene | undefined;
  private frame = 0;

  constructor(
    readonly view: HTMLCanvasElement,
    readonly map: HTMLCanvasElement,
  ) {
    new ResizeObserver(() => this.draw()).observe(view);
  }

  show(scene: Scene): void {
    this.scene = scene;
    this.draw();
  }

  /** Everything in the window, but not larger than it is. */
  fit(): void {
    const { layout } = this.scene ?? {};
    if (layout) {
      const [width, height] = [this.view.clientWidth, this.view.clientHeight];
      this.scale = Math.min(1, (width - 2 * MARGIN) / layout.width, (height - 2 * MARGIN) / layout.height);
      this.x = (width - layout.width * this.scale) / 2;
      this.y = (height - layout.height * this.scale) / 2;
      this.draw();
    }
  }

  /** The top of the graph, or where its operations begin, at a size that can be read. */
  start(): void {
    this.fit();
    if (this.scene && this.scale < 0.6) {
      this.scale = 0.8;
      this.x = (this.view.clientWidth - this.scene.layout.width * this.scale) / 2;
      this.y = MARGIN;
      const { model, layout } = this.scene;
      const begin = model.nodes.findIndex((node) => node.kind === 'op');
      const first = begin < 0 ? undefined : layout.boxes.get(model.path(begin).item);
      if (first && layout.width * this.scale > this.view.clientWidth) {
        this.x = this.view.clientWidth / 2 - (first.x + first.width / 2) * this.scale;
      }
      if (first) {
        this.y = Math.min(this.y, this.view.clientHeight / 2 - first.y * this.scale);
      }
      this.draw();
    }
  }

  pan(dx: number, dy: number): void {
    this.x += dx;
    this.y += dy;
    this.draw();
  }

  zoom(by: number, x = this.view.clientWidth / 2, y = this.view.clientHeight / 2): void {
    const scale = Math.min(Math.max(this.scale * by, 0.02), 4);
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.draw();
  }

  /** Scrolls a box into the middle, at a size that can be read. */
  center(box: Box): void {
    this.scale = Math.max(this.scale, 0.7);
    this.x = this.view.clientWidth / 2 - (box.x + Math.min(box.width / 2, 200)) * this.scale;
    this.y = this.view.clientHeight / 2 - (box.y + Math.min(box.height / 2, 100)) * this.scale;
    this.draw();
  }

  /** Keeps a box where it is on the screen while the graph around it changes. */
  keep(before: Box | undefined, after: Box | undefined): void {
    if (before && after) {
      this.x += (before.x - after.x) * this.scale;
      this.y += (before.y - after.y) * this.scale;
    }
  }

  /** The innermost box under a point of the canvas. */
  at(x: number, y: number): Box | undefined {
    const [px, py] = [(x - this.x) / this.scale, (y - this.y) / this.scale];
    return this.scene?.layout.order.findLast((box) => box.x <= px && px <= box.x + box.width && box.y <= py && py <= box.y + box.height);
  }

  /** Where the middle of a box is on the canvas. */
  middle(box: Box): [number, number] {
    return [this.x + (box.x + box.width / 2) * this.scale, this.y + (box.y + Math.min(box.height / 2, 14)) * this.scale];
  }

  /** Scrolls to a point of the map. */
  goTo(x: number, y: number): void {
    const { layout } = this.scene ?? {};
    if (layout) {
      const scale = this.mapScale(layout);
      this.x = this.view.clientWidth / 2 - (x / scale) * this.scale;
      this.y = this.view.clientHeight / 2 - (y / scale) * this.scale;
      this.draw();
    }
  }

  draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => {
      if (this.scene) {
        this.drawView(this.scene);
        this.drawMap(this.scene);
      }
    });
  }

  private drawView({ model, layout, theme, selected, found }: Scene): void {
    const context = prepared(this.view);
    context.fillStyle = theme.background;
    context.fillRect(0, 0, this.view.clientWidth, this.view.clientHeight);
    context.translate(this.x, this.y);
    context.scale(this.scale, this.scale);
    const left = -this.x / this.scale;
    const top = -this.y / this.scale;
    const right = left + this.view.clientWidth / this.scale;
    const bottom = top + this.view.clientHeight / this.scale;
    const visible = (box: Box) => box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;
    layout.order.filter((box) => box.open && visible(box)).forEach((box) => this.drawBox(context, model, box, theme, selected, found));
    this.drawEdges(context, layout, theme, selected, [left, top, right, bottom]);
    layout.order.filter((box) => !box.open && visible(box)).forEach((box) => this.drawBox(context, model, box, theme, selected, found));
  }

  private drawEdges(context: CanvasRenderingContext2D, layout: Layout, theme: Theme, selected: Item | undefined, [left, top, right, bottom]: [number, number, number, number]): void {
    const own: Path2D = new Path2D();
    const others: Path2D = new Path2D();
    const faint: Path2D = new Path2D();
    for (const edge of layout.edges) {
      const xs = edge.points.map(([x]) => x);
      const ys = edge.points.map(([, y]) => y);
      if (Math.max(...xs) < left || Math.min(...xs) > right || Math.max(...ys) < top || Math.min(...ys) > bottom) {
        continue;
      }
      const path = isOf(edge, selected) ? own : edge.faint ? faint : others;
      const { start, parts } = curve(edge.points);
      path.moveTo(...start);
      parts.forEach((part) => path.bezierCurveTo(...part));
      const [x, y] = edge.points.at(-1) ?? start;
      path.moveTo(x - 3.5, y - 6);
      path.lineTo(x, y);
      path.lineTo(x + 3.5, y - 6);
    }
    context.lineWidth = Math.max(1, 0.6 / this.scale);
    context.strokeStyle = theme.edge;
    context.stroke(others);
    context.globalAlpha = FAINT;
    context.stroke(faint);
    context.globalAlpha = 1;
    context.lineWidth = Math.max(2, 1.2 / this.scale);
    context.strokeStyle = theme.focus;
    context.stroke(own);
  }

  private drawBox(context: CanvasRenderingContext2D, model: Model, box: Box, theme: Theme, selected: Item | undefined, found: Set<Item>): void {
    const look = lookOf(model, box, theme);
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, look.radius);
    context.fillStyle = look.fill;
    context.fill();
    if (found.has(box.item)) {
      context.fillStyle = theme.found;
      context.fill();
    }
    context.setLineDash(look.dashed ? [5, 3] : []);
    context.lineWidth = box.item === selected ? 2.5 : 1;
    context.strokeStyle = box.item === selected ? theme.focus : look.stroke;
    context.stroke();
    context.setLineDash([]);
    if (look.bar) {
      context.fillStyle = look.bar;
      context.fillRect(box.x, box.y + 3, 4, box.height - 6);
    }
    if (this.scale < READABLE && !(box.open && this.scale > READABLE / 2)) {
      return;
    }
    for (const row of look.rows) {
      context.font = `${row.bold ? '600 ' : ''}${FONT}px ${theme.family}`;
      context.fillStyle = row.color;
      context.fillText(fitted(context, row.text, row.width), box.x + row.x, box.y + row.y);
    }
  }

  private drawMap({ layout, theme }: Scene): void {
    const [right, bottom] = [this.x + layout.width * this.scale, this.y + layout.height * this.scale];
    const whole = this.x >= 0 && this.y >= 0 && right <= this.view.clientWidth && bottom <= this.view.clientHeight;
    this.map.style.visibility = whole ? 'hidden' : 'visible';
    const context = prepared(this.map);
    const [width, height] = [this.map.clientWidth, this.map.clientHeight];
    const scale = this.mapScale(layout);
    context.fillStyle = theme.background;
    context.fillRect(0, 0, width, height);
    context.scale(scale, scale);
    for (const box of layout.order) {
      context.fillStyle = box.open ? theme.group : theme.edge;
      context.globalAlpha = box.open ? 0.5 : 0.8;
      context.fillRect(box.x, box.y, Math.max(box.width, 1 / scale), Math.max(box.height, 1 / scale));
    }
    context.globalAlpha = 1;
    context.lineWidth = 1.5 / scale;
    context.strokeStyle = theme.focus;
    context.strokeRect(-this.x / this.scale, -this.y / this.scale, this.view.clientWidth / this.scale, this.view.clientHeight / this.scale);
  }

  private mapScale(layout: Layout): number {
    return Math.min(this.map.clientWidth / Math.max(layout.width, 1), this.map.clientHeight / Math.max(layout.height, 1));
  }
}

/** The drawing context of a canvas, cleared and as sharp as the screen. */
function prepared(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) {
    return text;
  }
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return `${text.slice(0, low)}…`;
}
