// Lines of the code and of views that belong together: a color for each source line, and more of it for the one at the caret.

import * as vscode from 'vscode';
import type { Range } from './data';
import { SCHEME, SECTION, type Session } from './session';
import { parseView } from './views';

const HUES = [210, 35, 120, 285, 175, 0, 250, 75, 325, 150, 20, 195];
const CARET_MS = 25;
const SETTLED_MS = 120;

interface Origin {
  uri: string;
  line: number;
  lines: number[];
  kernel?: number;
}

/** Keeps the decorations of all visible editors up to date. */
export class Highlights implements vscode.Disposable {
  private readonly related = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor('fxLsp.relatedBackground'),
    overviewRulerColor: new vscode.ThemeColor('fxLsp.relatedBackground'),
    overviewRulerLane: vscode.OverviewRulerLane.Center,
  });
  private colors: vscode.TextEditorDecorationType[] = [];
  private readonly subscriptions: vscode.Disposable[];
  private caretTimer: NodeJS.Timeout | undefined;
  private colorTimer: NodeJS.Timeout | undefined;
  private asked: vscode.CancellationTokenSource | undefined;
  private marked = false;

  constructor(private readonly session: Session) {
    const soon = () => this.colorSoon();
    this.subscriptions = [
      this.related,
      vscode.window.onDidChangeTextEditorSelection((event) => this.caretMoved(event.textEditor)),
      vscode.window.onDidChangeVisibleTextEditors(soon),
      vscode.window.onDidChangeActiveTextEditor((editor) => editor && this.caretMoved(editor)),
      vscode.workspace.onDidChangeTextDocument((event) => event.document.uri.scheme === SCHEME && soon()),
      vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration(`${SECTION}.linkedLines`) && soon()),
      session.onChanged(soon),
      session.onReady(soon),
    ];
    soon();
  }

  dispose(): void {
    this.stopFollowing();
    clearTimeout(this.colorTimer);
    [...this.subscriptions, ...this.colors].forEach((subscription) => subscription.dispose());
  }

  private caretMoved(editor: vscode.TextEditor): void {
    if (!this.session.ready || editor !== vscode.window.activeTextEditor) {
      return;
    }
    if (views().length > 0) {
      this.stopFollowing();
      this.caretTimer = setTimeout(() => void this.follow(editor), CARET_MS);
    } else {
      this.unmark();
    }
  }

  private stopFollowing(): void {
    clearTimeout(this.caretTimer);
    this.asked?.cancel();
  }

  private unmark(): void {
    this.stopFollowing();
    if (this.marked) {
      this.marked = false;
      vscode.window.visibleTextEditors.forEach((shown) => shown.setDecorations(this.related, []));
    }
  }

  /** Marks what belongs to the caret's place, and scrolls the other views there. */
  private async follow(editor: vscode.TextEditor): Promise<void> {
    const asked = (this.asked = new vscode.CancellationTokenSource());
    const { line, character } = editor.selection.active;
    const params = { uri: editor.document.uri.toString(), position: { line, character } };
    const found = await this.session
      .request<{ uri: string; ranges: Range[] }[] | null>('fxLsp/related', params, asked.token)
      .catch(() => null);
    if (asked.token.isCancellationRequested) {
      return;
    }
    const ranges = new Map((found ?? []).map((item) => [normal(item.uri), linesOf(item.ranges)]));
    this.marked = true;
    for (const shown of vscode.window.visibleTextEditors) {
      const own = ranges.get(shown.document.uri.toString()) ?? [];
      shown.setDecorations(this.related, own);
      const [first] = own;
      if (first && shown !== editor && shown.document.uri.scheme === SCHEME && !own.some((range) => isVisible(shown, range))) {
        shown.revealRange(first, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
      }
    }
  }

  private colorSoon(): void {
    clearTimeout(this.colorTimer);
    this.colorTimer = setTimeout(() => void this.color(), SETTLED_MS);
  }

  /** Gives each source line of the visible views one color, there and in the code; in a list of kernels, each kernel. */
  private async color(): Promise<void> {
    const wanted = vscode.workspace.getConfiguration(SECTION).get<boolean>('linkedLines.colors', true);
    const compared = diffs();
    const shown = wanted && this.session.ready ? views().filter((view) => !compared.has(view.document.uri.toString())) : [];
    if (shown.length > 0 && this.colors.length === 0) {
      this.colors = HUES.map((hue) => tint(hue));
    }
    const origins = await Promise.all(shown.map(async (view) => ({ view, found: await this.origins(view.document) })));
    const sources = new Map<string, number>();
    for (const { found } of origins) {
      found.forEach((origin) => sources.set(keyOf(origin), 0));
    }
    [...sources.keys()].sort(byPlace).forEach((key, i) => sources.set(key, i % HUES.length));
    for (const { found } of origins) {
      const kernels = found.filter((origin) => origin.kernel !== undefined);
      kernels.reverse().forEach((origin) => sources.set(keyOf(origin), colorOf(origin) ?? 0)); // the first kernel of a line
    }
    const painted = new Map<vscode.TextEditor, Map<number, vscode.Range[]>>();
    const paint = (editor: vscode.TextEditor, color: number, line: number) => {
      const ranges = painted.get(editor) ?? painted.set(editor, new Map()).get(editor)!;
      (ranges.get(color) ?? ranges.set(color, []).get(color)!).push(new vscode.Range(line, 0, line, 0));
    };
    for (const { view, found } of origins) {
      for (const origin of found) {
        const color = colorOf(origin) ?? sources.get(keyOf(origin)) ?? 0;
        origin.lines.forEach((line) => paint(view, color, line));
      }
    }
    for (const editor of vscode.window.visibleTextEditors) {
      const uri = editor.document.uri.toString();
      sources.forEach((color, key) => {
        const cut = key.lastIndexOf('#');
        if (key.slice(0, cut) === uri) {
          paint(editor, color, Number(key.slice(cut + 1)));
        }
      });
      const ranges = painted.get(editor);
      this.colors.forEach((type, color) => editor.setDecorations(type, ranges?.get(color) ?? []));
    }
    if (views().length === 0) {
      this.unmark(); // a panel in front of the last view is no editor that becomes active
    } else if (vscode.window.activeTextEditor) {
      this.caretMoved(vscode.window.activeTextEditor); // what is beside it may be new
    }
  }

  private async origins(document: vscode.TextDocument): Promise<Origin[]> {
    const found = await this.session
      .request<Origin[] | null>('fxLsp/origins', { uri: document.uri.toString() })
      .catch(() => null);
    return found ?? [];
  }
}

/** The visible editors that show a view of a target, each half of a diff among them. */
function views(): vscode.TextEditor[] {
  return vscode.window.visibleTextEditors.filter((editor) => parseView(editor.document.uri) !== undefined);
}

/** What the diff editors show that are in front: their own colors say enough. */
function diffs(): Set<string> {
  const inputs = vscode.window.tabGroups.all.map((group) => group.activeTab?.input);
  const found = inputs.filter((input): input is vscode.TabInputTextDiff => input instanceof vscode.TabInputTextDiff);
  return new Set(found.flatMap((input) => [input.original.toString(), input.modified.toString()]));
}

function tint(hue: number): vscode.TextEditorDecorationType {
  return vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    light: { backgroundColor: `hsla(${hue}, 75%, 50%, 0.13)` },
    dark: { backgroundColor: `hsla(${hue}, 65%, 55%, 0.14)` },
  });
}

function keyOf(origin: Origin): string {
  return `${normal(origin.uri)}#${origin.line}`;
}

/** The color of a kernel, in a view that lists kernels. */
function colorOf(origin: Origin): number | undefined {
  return origin.kernel === undefined ? undefined : (origin.kernel - 1) % HUES.length;
}

function byPlace(a: string, b: string): number {
  const [x, y] = [a, b].map((key) => key.lastIndexOf('#')) as [number, number];
  return a.slice(0, x).localeCompare(b.slice(0, y)) || Number(a.slice(x + 1)) - Number(b.slice(y + 1));
}

function isVisible(editor: vscode.TextEditor, range: vscode.Range): boolean {
  return editor.visibleRanges.some((visible) => visible.intersection(range) !== undefined);
}

function normal(uri: string): string {
  return vscode.Uri.parse(uri).toString();
}

/** The lines of ranges, each once: whole lines are marked, and a mark upon a mark would hide the text. */
function linesOf(ranges: Range[]): vscode.Range[] {
  const lines = ranges.flatMap(({ start, end }) => Array.from({ length: end.line - start.line + 1 }, (_, i) => start.line + i));
  return [...new Set(lines)].map((line) => new vscode.Range(line, 0, line, 0));
}
