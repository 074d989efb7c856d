// Webviews: the picture of a graph, memory, benchmarks, and graphs in columns. They hold no state but what they show, and survive a reload.

import { randomBytes } from 'node:crypto';
import * as vscode from 'vscode';
import type { ComparisonData, FailureData, GraphData, MemoryData, Place } from './data';
import { columnOf, openPlace, openView } from './documents';
import type { BenchmarkData } from './measured';
import type { Session } from './session';
import { parseView, viewUri } from './views';

export type Kind = 'graph' | 'memory' | 'benchmark' | 'compare';
type Message = { type: 'ready' } | { type: 'run'; command: string } | { type: 'text' } | { type: 'open'; place: Place } | { type: 'show'; uri: string } | { type: 'save'; svg: string; name: string };

const KINDS = ['graph', 'memory', 'benchmark', 'compare'] as const;
const REQUESTS = { graph: 'fxLsp/graph', memory: 'fxLsp/memory', benchmark: 'fxLsp/benchmark', compare: 'fxLsp/compare' };
const TITLES = { graph: 'graph', memory: 'memory', benchmark: 'benchmark', compare: 'comparison' };
/** What the buttons of a panel may run, on its target. */
const BUTTONS = ['fx-lsp.bench', 'fx-lsp.benchWithOptions', 'fx-lsp.stopBench'];
const open = new Map<string, Panel>();

export function registerPanels(context: vscode.ExtensionContext, session: Session): void {
  for (const kind of KINDS) {
    const serializer: vscode.WebviewPanelSerializer = {
      deserializeWebviewPanel: (panel, state: { uri?: string; uris?: string[] } | undefined) => {
        const uri = state?.uri && vscode.Uri.parse(state.uri);
        if (!uri) {
          panel.dispose();
          return Promise.resolve();
        }
        new Panel(session, kind, uri, panel, (state.uris ?? []).map((one) => vscode.Uri.parse(one)));
        return Promise.resolve();
      },
    };
    context.subscriptions.push(vscode.window.registerWebviewPanelSerializer(`fxLsp.${kind}`, serializer));
  }
}

/** Shows a panel about a target, or about the stage that `view` shows. */
export function openPanel(session: Session, kind: Kind, uri: vscode.Uri, name: string, view?: vscode.Uri): void {
  const shown = kind === 'benchmark' ? pageUri(uri, name) : (view ?? (parseView(uri) ? uri : viewUri(uri, name, 'forward')));
  const known = open.get(`${kind} ${keyOf(kind, shown)}`);
  if (known) {
    known.reveal();
    return;
  }
  const column = columnOf(shown);
  const panel = vscode.window.createWebviewPanel(`fxLsp.${kind}`, '', { viewColumn: column, preserveFocus: false }, { retainContextWhenHidden: true });
  new Panel(session, kind, shown, panel);
}

/** Shows graphs in columns, their nodes aligned. */
export function openComparison(session: Session, uris: vscode.Uri[]): void {
  const [first] = uris;
  const known = open.get(`compare ${uris.map(String).join(' ')}`);
  if (known) {
    known.reveal();
  } else if (first) {
    const panel = vscode.window.createWebviewPanel('fxLsp.compare', '', { viewColumn: vscode.ViewColumn.Active, preserveFocus: false }, { retainContextWhenHidden: true });
    new Panel(session, 'compare', first, panel, uris);
  }
}

class Panel {
  private readonly subscriptions: vscode.Disposable[];
  private asked: vscode.CancellationTokenSource | undefined;

  constructor(
    private readonly session: Session,
    private readonly kind: Kind,
    private uri: vscode.Uri,
    private readonly panel: vscode.WebviewPanel,
    private readonly compared: vscode.Uri[] = [],
  ) {
    const { webview } = panel;
    webview.options = { enableScripts: true, localResourceRoots: [vscode.Uri.joinPath(session.context.extensionUri, 'dist', 'webview')] };
    webview.html = page(session.context.extensionUri, webview, kind);
    const icon = (theme: string) => vscode.Uri.joinPath(session.context.extensionUri, 'media', `view-${theme}.svg`);
    panel.iconPath = { light: icon('light'), dark: icon('dark') };
    this.subscriptions = [
      webview.onDidReceiveMessage((message: Message) => void this.received(message)),
      session.onMeasuring(({ uri, running }) => {
        if (this.key === `benchmark ${keyOf('benchmark', vscode.Uri.parse(uri))}`) {
          void webview.postMessage({ type: 'running', uri: this.uri.toString(), data: running });
        }
      }),
      session.onChanged((uris) => uris.some((changed) => this.files.some((file) => changed.fsPath === file.fsPath)) && void this.load()),
      panel.onDidDispose(() => this.dispose()),
    ];
    this.name();
  }

  reveal(): void {
    this.panel.reveal();
  }

  private get file(): vscode.Uri | undefined {
    return parseView(this.uri)?.file;
  }

  /** The files that the panel is about. */
  private get files(): vscode.Uri[] {
    const uris = this.compared.length ? this.compared : [this.uri];
    const files = uris.map((uri) => parseView(uri)?.file).filter((file) => file !== undefined);
    return files.filter((file, i) => files.findIndex((other) => other.fsPath === file.fsPath) === i);
  }

  private get key(): string {
    return this.compared.length ? `compare ${this.compared.map(String).join(' ')}` : `${this.kind} ${keyOf(this.kind, this.uri)}`;
  }

  private name(): void {
    const view = parseView(this.uri);
    this.panel.title = `${view?.name ?? ''} · ${this.kind === 'graph' ? (view?.stage ?? '') : TITLES[this.kind]}`;
    open.set(this.key, this);
  }

  private async received(message: Message): Promise<void> {
    if (message.type === 'ready') {
      await this.load();
    } else if (message.type === 'open') {
      await showPlace(message.place);
    } else if (message.type === 'show') {
      open.delete(this.key);
      this.uri = vscode.Uri.parse(message.uri);
      this.name();
      await this.load();
    } else if (message.type === 'run') {
      await (BUTTONS.includes(message.command) && vscode.commands.executeCommand(message.command, this.uri.toString()));
    } else if (message.type === 'text') {
      await openView(this.uri);
    } else {
      await save(message.svg, message.name, this.file);
    }
  }

  private async load(): Promise<void> {
    this.asked?.cancel();
    const asked = (this.asked = new vscode.CancellationTokenSource());
    const uri = this.uri.toString();
    const uris = this.compared.map(String);
    void this.panel.webview.postMessage({ type: 'loading', uri, uris });
    try {
      for (const file of this.files) {
        await (isNotebook(file) ? vscode.workspace.openNotebookDocument(file) : vscode.workspace.openTextDocument(file)); // what the server traces are documents that are open
      }
      const params = this.compared.length ? { uris } : { uri };
      const data = await this.session.request<GraphData | MemoryData | BenchmarkData | ComparisonData | FailureData>(REQUESTS[this.kind], params, asked.token);
      if (!asked.token.isCancellationRequested) {
        await this.panel.webview.postMessage({ type: 'data', uri, uris, data });
      }
    } catch (error) {
      if (!asked.token.isCancellationRequested) {
        await this.panel.webview.postMessage({ type: 'data', uri, uris, data: { failure: error instanceof Error ? error.message : String(error) } });
      }
    }
  }

  private dispose(): void {
    open.delete(this.key);
    this.asked?.cancel();
    this.subscriptions.forEach((subscription) => subscription.dispose());
  }
}

/** Goes to a place in the code, in an editor that has it already where there is one. */
function isNotebook(file: vscode.Uri): boolean {
  return file.path.endsWith('.ipynb');
}

async function showPlace(place: Place): Promise<void> {
  const uri = vscode.Uri.parse(place.uri);
  const { start, end } = place.range;
  const selection = new vscode.Range(start.line, start.character, end.line, end.character);
  const shown = vscode.window.visibleTextEditors.find((editor) => editor.document.uri.toString() === uri.toString());
  const group = vscode.window.tabGroups.all.find((known) => known.tabs.some((tab) => tab.input instanceof vscode.TabInputText && tab.input.uri.toString() === uri.toString()));
  const viewColumn = shown?.viewColumn ?? group?.viewColumn ?? vscode.ViewColumn.One;
  const editor = await openPlace(uri, selection, viewColumn);
  const line = new vscode.Range(start.line, 0, start.line, 0); // not the whole: that would scroll sideways
  editor?.revealRange(line, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
}

async function save(svg: string, name: string, file: vscode.Uri | undefined): Promise<void> {
  const folder = file ? vscode.Uri.joinPath(file, '..') : vscode.workspace.workspaceFolders?.[0]?.uri;
  const defaultUri = folder && vscode.Uri.joinPath(folder, `${name.replace(/[^\w.-]+/g, '_')}.svg`);
  const uri = await vscode.window.showSaveDialog({ ...(defaultUri ? { defaultUri } : {}), filters: { SVG: ['svg'] }, title: 'Save the picture' });
  if (uri) {
    await vscode.workspace.fs.writeFile(uri, new TextEncoder().encode(svg));
  }
}

/** One panel for each view of a graph, one for the memory and one for the benchmarks of each target. */
function keyOf(kind: Kind, uri: vscode.Uri): string {
  const view = parseView(uri);
  return kind === 'graph' || !view ? uri.toString() : `${view.file.toString()}#${view.name}`;
}

/** The page about what was measured of a target. */
function pageUri(uri: vscode.Uri, name: string): vscode.Uri {
  const view = parseView(uri);
  return viewUri(view?.file ?? uri, view?.name ?? name, 'benchmark', 'benchmark');
}

function page(extension: vscode.Uri, webview: vscode.Webview, kind: Kind): string {
  const nonce = randomBytes(16).toString('base64url');
  const asset = (name: string) => webview.asWebviewUri(vscode.Uri.joinPath(extension, 'dist', 'webview', name)).toString();
  const policy = [
    "default-src 'none'",
    `style-src ${webview.cspSource}`,
    `script-src 'nonce-${nonce}'`,
    `connect-src ${webview.cspSource}`,
    'worker-src blob:',
  ].join('; ');
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="${asset(`${kind}.css`)}">
<title>${TITLES[kind]}</title>
</head>
<body data-worker="${asset('elk-worker.js')}">
<main id="root"></main>
<script nonce="${nonce}" src="${asset(`${kind}.js`)}"></script>
</body>
</html>`;
}

