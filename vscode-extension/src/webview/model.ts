// A graph with its groups, and which of them are open: what is to be seen of it.

import type { GraphData, GroupData, NodeData } from '../data';
import { formatBytes } from '../data';

/** A node (0 and up), or a group: `-1 - index`. */
export type Item = number;

export const isGroup = (item: Item): boolean => item < 0;
export const groupOf = (item: Item): number => -1 - item;
export const itemOf = (group: number): Item => -1 - group;

const SHOWN_AT_FIRST = 140;

export class Model {
  readonly nodes: NodeData[];
  readonly groups: GroupData[];
  readonly inputs: number[][];
  readonly users: number[][];
  readonly open = new Set<number>();
  private readonly childGroups = new Map<number, number[]>();
  private readonly childNodes = new Map<number, number[]>();
  private readonly home: number[];
  private readonly sizes: { ops: number; saved: number; recomputed: number }[];

  constructor(readonly data: GraphData) {
    this.nodes = data.nodes;
    this.groups = data.groups;
    this.inputs = data.nodes.map(() => []);
    this.users = data.nodes.map(() => []);
    for (const [from, to] of data.edges) {
      this.inputs[to]?.push(from);
      this.users[from]?.push(to);
    }
    this.home = data.nodes.map((node, i) => (node.kind === 'op' ? node.group : this.homeOf(i)));
    this.home.forEach((group, i) => push(this.childNodes, group, i));
    data.groups.forEach((group, i) => push(this.childGroups, group.parent, i));
    this.sizes = data.groups.map(() => ({ ops: 0, saved: 0, recomputed: 0 }));
    data.nodes.forEach((node, i) => {
      for (let group = this.home[i] ?? -1; group >= 0; group = this.groups[group]!.parent) {
        const size = this.sizes[group]!;
        size.ops += node.kind === 'op' ? 1 : 0;
        size.saved += node.saved ?? 0;
        size.recomputed += node.recomputed ? 1 : 0;
      }
    });
    this.openAtFirst();
  }

  /** What is directly inside of a group, or (-1) of the graph. */
  children(group: number): Item[] {
    return [...(this.childNodes.get(group) ?? []), ...(this.childGroups.get(group) ?? []).map(itemOf)];
  }

  /** The groups around a node, outermost first. */
  groupsAround(node: number): number[] {
    const found: number[] = [];
    for (let group = this.home[node] ?? -1; group >= 0; group = this.groups[group]!.parent) {
      found.unshift(group);
    }
    return found;
  }

  /** The groups around a node that are open, then what is to be seen of it: itself, or the first closed group. */
  path(node: number): { open: number[]; item: Item } {
    const open: number[] = [];
    for (const group of this.groupsAround(node)) {
      if (!this.open.has(group)) {
        return { open, item: itemOf(group) };
      }
      open.push(group);
    }
    return { open, item: node };
  }

  toggle(group: number): void {
    if (!this.open.delete(group)) {
      this.open.add(group);
    }
  }

  /** Opens what hides a node. */
  reveal(node: number): void {
    this.groupsAround(node).forEach((group) => this.open.add(group));
  }

  /** Opens and closes groups as they were in another version of the graph; new ones stay as they are at first. */
  follow(before: Model): void {
    const known = new Map(before.groups.map((_, group) => [before.key(group), before.open.has(group)]));
    this.groups.forEach((_, group) => {
      const was = known.get(this.key(group));
      if (was !== undefined && was !== this.open.has(group)) {
        this.toggle(group);
      }
    });
  }

  /** What a group is in other versions of the graph as well, in which its line may be another. */
  private key(group: number): string {
    const { title, round, parent } = this.groups[group]!;
    return `${parent < 0 ? '' : this.key(parent)}/${title.replace(/^\S+:\d+ +/, '')}#${round}`;
  }

  openAll(): void {
    this.groups.forEach((_, group) => this.open.add(group));
  }

  closeAll(): void {
    this.open.clear();
  }

  /** The lines of text of an item: what it is, its shape, what is special about it. */
  lines(item: Item): { title: string; detail: string; mark: string } {
    if (isGroup(item)) {
      const group = this.groups[groupOf(item)]!;
      const { ops, saved, recomputed } = this.sizes[groupOf(item)]!;
      const marks = [saved ? `saves ${formatBytes(saved)}` : '', recomputed ? `${recomputed} recomputed` : ''];
      const title = group.round ? `${group.title} · ${group.round}` : group.title;
      return { title, detail: `${ops.toLocaleString('en')} ${ops === 1 ? 'op' : 'ops'}`, mark: marks.filter(Boolean).join(' · ') };
    }
    const node = this.nodes[item]!;
    const title = node.kind === 'op' && node.label !== node.name ? node.label : node.name;
    const mark = node.saved !== null ? `saved ${formatBytes(node.saved)}` : node.recomputed ? 'recomputed' : '';
    return { title, detail: node.kind === 'output' ? '' : node.spec, mark };
  }

  /** Nodes whose name, operation or shape contain a text, then those whose source line does. */
  find(text: string): number[] {
    const wanted = text.trim().toLowerCase();
    if (wanted === '') {
      return [];
    }
    const lines = this.groups.map((group) => group.title.toLowerCase().includes(wanted));
    const own = this.nodes.map(({ name, label, spec }) => `${name} ${label} ${spec}`.toLowerCase().includes(wanted));
    const all = this.nodes.map((_, i) => i);
    return [...all.filter((i) => own[i]), ...all.filter((i) => !own[i] && lines[this.nodes[i]!.group])];
  }

  /** Opens groups, the outer ones first, as long as there is not too much to be seen at once. */
  private openAtFirst(): void {
    let shown = this.children(-1).length;
    let level = this.childGroups.get(-1) ?? [];
    while (level.length > 0) {
      const next: number[] = [];
      for (const group of level) {
        const more = this.children(group).length - 1;
        if (shown + more <= SHOWN_AT_FIRST) {
          shown += more;
          this.open.add(group);
          next.push(...(this.childGroups.get(group) ?? []));
        }
      }
      level = next;
    }
  }

  /** Where an input of the graph is shown: in the innermost group that has all its users that are in one. */
  private homeOf(node: number): number {
    const [first, ...others] = (this.users[node] ?? []).filter((user) => this.nodes[user]!.group >= 0).map((user) => this.around(this.nodes[user]!.group));
    if (first === undefined || this.nodes[node]!.kind === 'output') {
      return -1;
    }
    let depth = first.length;
    for (const other of others) {
      depth = Math.min(depth, other.length);
      while (depth > 0 && other[depth - 1] !== first[depth - 1]) {
        depth -= 1;
      }
    }
    return first[depth - 1] ?? -1;
  }

  private around(group: number): number[] {
    const found: number[] = [];
    for (let at = group; at >= 0; at = this.groups[at]!.parent) {
      found.unshift(at);
    }
    return found;
  }
}

function push(map: Map<number, number[]>, key: number, value: number): void {
  const known = map.get(key);
  if (known) {
    known.push(value);
  } else {
    map.set(key, [value]);
  }
}
