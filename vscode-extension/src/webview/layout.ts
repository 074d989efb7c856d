// Places for what is to be seen of a graph: ELK lays out each open group by itself, in a worker.

import type { ElkNode } from 'elkjs/lib/elk-api';
import ELK from 'elkjs/lib/elk-api';
import { groupOf, isGroup, itemOf, type Item, type Model } from './model';

export interface Box {
  item: Item;
  x: number;
  y: number;
  width: number;
  height: number;
  /** The head of an open group is drawn above what it holds. */
  open: boolean;
}

export interface Edge {
  from: Item;
  to: Item;
  points: [number, number][];
  /** Only hands what is kept for backward out of the graph, which its mark says already. */
  faint: boolean;
}

export interface Layout {
  boxes: Map<Item, Box>;
  /** Outer groups before what is in them. */
  order: Box[];
  edges: Edge[];
  width: number;
  height: number;
}

interface Level {
  places: Map<Item, { x: number; y: number; width: number; height: number }>;
  routes: Map<string, [number, number][]>;
  width: number;
  height: number;
}

export const HEAD = 22;
const PADDING = 10;
const LINE = 15;
const MANY = 250;
const OPTIONS = {
  'elk.algorithm': 'layered',
  'elk.direction': 'DOWN',
  'elk.padding': '[top=0,left=0,bottom=0,right=0]',
  'elk.spacing.nodeNode': '18',
  'elk.spacing.edgeNode': '12',
  'elk.spacing.edgeEdge': '8',
  'elk.layered.spacing.nodeNodeBetweenLayers': '26',
  'elk.layered.spacing.edgeNodeBetweenLayers': '10',
  'elk.layered.considerModelOrder.strategy': 'NODES_AND_EDGES',
  'elk.edgeRouting': 'POLYLINE',
  'elk.separateConnectedComponents': 'false',
};
/** For a level of many: what hangs together is laid out by itself, as the time grows with the width of a layer squared. */
const FAST = {
  'elk.layered.thoroughness': '2',
  'elk.layered.nodePlacement.strategy': 'SIMPLE',
  'elk.layered.crossingMinimization.greedySwitch.type': 'OFF',
  'elk.separateConnectedComponents': 'true',
  'elk.layered.considerModelOrder.components': 'MODEL_ORDER',
};

export class Layouter {
  private readonly known = new Map<string, Level>();

  private constructor(
    private readonly elk: InstanceType<typeof ELK>,
    private readonly measure: (text: string, bold: boolean) => number,
  ) {}

  /** A layouter with a worker of its own. The worker's text is fetched: a webview may start none from elsewhere. */
  static async create(script: string, measure: (text: string, bold: boolean) => number): Promise<Layouter> {
    const url = URL.createObjectURL(await (await fetch(script)).blob());
    return new Layouter(new ELK({ workerFactory: () => new Worker(url) }), measure);
  }

  /** Forgets the places of another graph. */
  forget(): void {
    this.known.clear();
  }

  async layout(model: Model): Promise<Layout> {
    const paths = model.nodes.map((_, i) => model.path(i));
    const wanted = new Map<number, Map<string, [Item, Item]>>();
    const drawn = new Map<string, { from: Item; to: Item; level: number; ends: [Item, Item]; faint: boolean }>();
    for (const [from, to] of model.data.edges) {
      const [a, b] = [paths[from]!, paths[to]!];
      if (a.item === b.item) {
        continue;
      }
      let depth = 0;
      while (depth < a.open.length && a.open[depth] === b.open[depth]) {
        depth += 1;
      }
      const level = a.open[depth - 1] ?? -1;
      const ends: [Item, Item] = [at(a, depth), at(b, depth)];
      const level_ = wanted.get(level) ?? wanted.set(level, new Map()).get(level)!;
      level_.set(`${ends[0]}>${ends[1]}`, ends);
      const faint = model.nodes[from]!.saved !== null && model.nodes[to]!.kind === 'output';
      const id = `${a.item}>${b.item}`;
      drawn.set(id, { from: a.item, to: b.item, level, ends, faint: faint && (drawn.get(id)?.faint ?? true) });
    }
    const levels = new Map<number, Level>();
    const root = await this.level(model, -1, wanted, levels);
    const layout: Layout = { boxes: new Map(), order: [], edges: [], width: root.width, height: root.height };
    const corners = new Map<number, [number, number]>([[-1, [0, 0]]]);
    place(-1, 0, 0, levels, layout, corners);
    for (const { from, to, level, ends, faint } of drawn.values()) {
      const [x, y] = corners.get(level) ?? [0, 0];
      const route = (levels.get(level)?.routes.get(`${ends[0]}>${ends[1]}`) ?? []).map(([a, b]): [number, number] => [a + x, b + y]);
      const [source, target] = [layout.boxes.get(from), layout.boxes.get(to)];
      if (source && target) {
        const begin: [number, number][] = from === ends[0] ? [] : [[source.x + source.width / 2, source.y + source.height]];
        const end: [number, number][] = to === ends[1] ? [] : [[target.x + target.width / 2, target.y]];
        layout.edges.push({ from, to, points: [...begin, ...route, ...end], faint });
      }
    }
    return layout;
  }

  private async level(model: Model, group: number, wanted: Map<number, Map<string, [Item, Item]>>, levels: Map<number, Level>): Promise<Level> {
    const children: { item: Item; width: number; height: number }[] = [];
    const inside: string[] = [];
    for (const item of model.children(group)) {
      const open = isGroup(item) && model.open.has(groupOf(item));
      const level = open ? await this.level(model, groupOf(item), wanted, levels) : undefined;
      const size = level ? framed(level, this.titleWidth(model, item)) : this.size(model, item);
      children.push({ item, ...size });
      inside.push(`${item}:${size.width}x${size.height}`);
    }
    const edges = [...(wanted.get(group)?.entries() ?? [])];
    const key = `${group} ${inside.join(' ')} ${edges.map(([id]) => id).join(' ')}`;
    const found = this.known.get(key) ?? (await this.elkLevel(children, edges));
    this.known.set(key, found);
    levels.set(group, found);
    return found;
  }

  private async elkLevel(children: { item: Item; width: number; height: number }[], edges: [string, [Item, Item]][]): Promise<Level> {
    const level: Level = { places: new Map(), routes: new Map(), width: 0, height: 0 };
    const graph: ElkNode = {
      id: 'level',
      layoutOptions: children.length > MANY ? { ...OPTIONS, ...FAST } : OPTIONS,
      children: children.map(({ item, width, height }) => ({ id: String(item), width, height })),
      edges: edges.map(([id, [from, to]]) => ({ id, sources: [String(from)], targets: [String(to)] })),
    };
    const done = children.length === 1 ? alone(graph) : await this.elk.layout(graph);
    for (const child of done.children ?? []) {
      const [x, y, width, height] = [child.x ?? 0, child.y ?? 0, child.width ?? 0, child.height ?? 0];
      level.places.set(Number(child.id), { x, y, width, height });
      level.width = Math.max(level.width, x + width);
      level.height = Math.max(level.height, y + height);
    }
    for (const edge of done.edges ?? []) {
      const points = (edge.sections ?? []).flatMap((section) => [section.startPoint, ...(section.bendPoints ?? []), section.endPoint]);
      level.routes.set(edge.id, points.map(({ x, y }): [number, number] => [x, y]));
      points.forEach(({ x, y }) => {
        level.width = Math.max(level.width, x);
        level.height = Math.max(level.height, y);
      });
    }
    return level;
  }

  private size(model: Model, item: Item): { width: number; height: number } {
    const { title, detail, mark } = model.lines(item);
    const texts = [this.measure(title, true), this.measure(detail, false), this.measure(mark, false)];
    const rows = 1 + (detail ? 1 : 0) + (mark ? 1 : 0);
    const width = Math.min(Math.max(...texts), isGroup(item) ? 340 : 300) + 24;
    return { width: Math.round(width), height: rows * LINE + 12 };
  }

  private titleWidth(model: Model, item: Item): number {
    return Math.min(this.measure(model.lines(item).title, false) + 36, 280);
  }
}

/** What of a node is to be seen at a depth of its open groups: itself, or the group around it. */
function at(path: { open: number[]; item: Item }, depth: number): Item {
  const group = path.open[depth];
  return group === undefined ? path.item : itemOf(group);
}

function framed(level: Level, title: number): { width: number; height: number } {
  return { width: Math.ceil(Math.max(level.width + 2 * PADDING, title)), height: Math.ceil(level.height + HEAD + 2 * PADDING) };
}

function alone(graph: ElkNode): ElkNode {
  return { ...graph, edges: [], children: (graph.children ?? []).map((child) => ({ ...child, x: 0, y: 0 })) };
}

function place(group: number, x: number, y: number, levels: Map<number, Level>, layout: Layout, corners: Map<number, [number, number]>): void {
  for (const [item, spot] of levels.get(group)?.places ?? []) {
    const open = isGroup(item) && levels.has(groupOf(item));
    const box = { item, x: x + spot.x, y: y + spot.y, width: spot.width, height: spot.height, open };
    layout.boxes.set(item, box);
    layout.order.push(box);
    if (open) {
      const inner = levels.get(groupOf(item))!;
      const corner: [number, number] = [box.x + (box.width - inner.width) / 2, box.y + HEAD + PADDING];
      corners.set(groupOf(item), corner);
      place(groupOf(item), ...corner, levels, layout, corners);
    }
  }
}
