// A column before the code with the share of each line in the cost of its function: the stronger, the more it costs.

import * as vscode from 'vscode';
import { formatBytes, formatFlops, type LineCostData, type LineCostsData } from './data';
import { CELL, SCHEME, SECTION, type Session } from './session';

const SETTLED_MS = 120;
const WIDTH = '5ch';
const STEPS = 20;
/** Shares below this have no number: they would round to zero. */
const LEAST = 0.005;
const HOT = { light: '214, 72, 10', dark: '255, 124, 43' };
const SAVED = { light: '183, 121, 31', dark: '230, 162, 60' };
const OF: Record<LineCostsData['measure'], string> = { time: 'time', flops: 'FLOPs', bytes: 'moved bytes' };

type Shown = 'cost' | 'saved';

/** Keeps the columns of all visible editors up to date, while the setting asks for them. */
export class Heat implements vscode.Disposable {
  private readonly column = vscode.window.createTextEditorDecorationType({ rangeBehavior: vscode.DecorationRangeBehavior.ClosedClosed });
  private readonly subscriptions: vscode.Disposable[];
  private timer: NodeJS.Timeout | undefined;
  private turn = 0;
  private drawn = false;

  constructor(private readonly session: Session) {
    const soon = () => this.drawSoon();
    this.subscriptions = [
      this.column,
      vscode.window.onDidChangeVisibleTextEditors(soon),
      vscode.workspace.onDidChangeTextDocument(soon),
      vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration(`${SECTION}.lineCosts`) && soon()),
      session.onChanged(soon),
      session.onReady(soon),
    ];
    soon();
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.subscriptions.forEach((subscription) => subscription.dispose());
  }

  private drawSoon(): void {
    if (this.drawn || isWanted()) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => void this.draw(), SETTLED_MS);
    }
  }

  private async draw(): Promise<void> {
    const turn = (this.turn += 1);
    const wanted = isWanted() && this.session.ready;
    this.drawn = wanted;
    await Promise.all(
      vscode.window.visibleTextEditors.filter(isCode).map(async (editor) => {
        const { uri, version } = editor.document;
        const found = wanted ? await this.session.request<LineCostsData[] | null>('fxLsp/lineCosts', { uri: uri.toString() }).catch(() => null) : null;
        if (turn === this.turn && version === editor.document.version) {
          editor.setDecorations(this.column, column(editor.document, found ?? []));
        }
      }),
    );
  }
}

function isWanted(): boolean {
  return vscode.workspace.getConfiguration(SECTION).get<boolean>('lineCosts.enabled', false);
}

function isCode({ document }: vscode.TextEditor): boolean {
  return document.languageId === 'python' && document.uri.scheme !== SCHEME;
}

/** The column of a document: a cell for each line, so that the code behind it stays aligned; none without any cost. */
function column(document: vscode.TextDocument, found: LineCostsData[]): vscode.DecorationOptions[] {
  const shown = vscode.workspace.getConfiguration(SECTION).get<Shown>('lineCosts.of', 'cost');
  const uri = document.uri.toString();
  const costs = new Map<number, [LineCostsData, LineCostData]>();
  for (const target of found) {
    const own = target.lines.filter((line) => (document.uri.scheme === CELL ? vscode.Uri.parse(line.uri).toString() === uri : true));
    own.forEach((line) => costs.set(line.line, [target, line]));
  }
  return costs.size === 0 ? [] : Array.from({ length: document.lineCount }, (_, line) => cell(line, shown, costs.get(line)));
}

function cell(line: number, shown: Shown, cost: [LineCostsData, LineCostData] | undefined): vscode.DecorationOptions {
  const range = new vscode.Range(line, 0, line, 0);
  const share = cost === undefined ? 0 : shown === 'saved' ? cost[1].savedShare : cost[1].share;
  const [rgb, strength] = [shown === 'saved' ? SAVED : HOT, Math.round(share * STEPS) / STEPS];
  const text = share >= LEAST ? `${Math.round(100 * share)}%` : cost === undefined ? '' : '·';
  const before: vscode.ThemableDecorationAttachmentRenderOptions = {
    contentText: `${text.padStart(4, '\u00a0')}\u00a0`,
    width: WIDTH,
    height: '100%',
    margin: '0 1ch 0 0',
    color: new vscode.ThemeColor(share >= LEAST ? 'editor.foreground' : 'editorLineNumber.foreground'),
  };
  const tinted = (color: string) => ({ before: { backgroundColor: `rgba(${color}, ${share >= LEAST ? (0.06 + 0.64 * strength).toFixed(3) : 0})` } });
  return {
    range,
    renderOptions: { before, light: tinted(rgb.light), dark: tinted(rgb.dark) },
    ...(cost === undefined ? {} : { hoverMessage: told(...cost) }),
  };
}

/** What a hover says of a line. */
function told(target: LineCostsData, line: LineCostData): vscode.MarkdownString {
  const about = target.guessed && target.measure !== 'time' ? '~' : '';
  const how = target.measure === 'time' ? `measured on ${target.where}, eager` : 'estimated from the graphs';
  const percent = (share: number) => `${(100 * share).toFixed(1)}%`;
  const guess = target.guessed ? '~' : '';
  const rows = [
    `${about}${percent(line.share)} of the ${OF[target.measure]} of ${target.name}, ${how}`,
    line.times ? `forward ${micros(line.times.forward)}, backward ${micros(line.times.backward)}` : '',
    [line.flops ? `${guess}${formatFlops(line.flops)}` : '', line.moved ? `${guess}${formatBytes(line.moved)} read and written` : ''].filter(Boolean).join(', '),
    line.saved ? `saves ${guess}${formatBytes(line.saved)} for backward, ${percent(line.savedShare)} of the activations that ${target.name} saves` : '',
    line.live ? `${guess}${formatBytes(line.live)} of activations in use` : '',
  ];
  const text = new vscode.MarkdownString();
  rows.filter(Boolean).forEach((row) => text.appendText(`${row}\n\n`));
  return text;
}

function micros(time: number): string {
  return `${time.toLocaleString('en', { maximumFractionDigits: 1 })} µs`;
}
