// What is known of the functions of each document: the tree view, the contexts of commands, and what is at the cursor.

import * as vscode from 'vscode';
import { formatBytes, type FunctionData, type FunctionsData, type PassData, type Place, type Range } from './data';
import { SCHEME, type Session } from './session';

const SETTLED_MS = 60;

export type Item =
  | { kind: 'function'; uri: vscode.Uri; data: FunctionData }
  | { kind: 'pass'; uri: vscode.Uri; data: PassData }
  | { kind: 'detail'; label: string; description: string; icon: string; command?: vscode.Command };

/** A function, a module or a pass, and the document that it is in. */
export interface Target {
  uri: vscode.Uri;
  name: string;
  kind: string;
}

export class Functions implements vscode.TreeDataProvider<Item>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly view: vscode.TreeView<Item>;
  private readonly subscriptions: vscode.Disposable[];
  private timer: NodeJS.Timeout | undefined;
  private uri: vscode.Uri | undefined;
  private data: FunctionsData | undefined;
  private turn = 0;

  readonly onDidChangeTreeData = this.changed.event;

  constructor(private readonly session: Session) {
    this.view = vscode.window.createTreeView('fx-lsp.functions', { treeDataProvider: this, showCollapseAll: true });
    const soon = () => this.refreshSoon();
    this.subscriptions = [
      this.view,
      session.onReady(soon),
      session.onStatus(soon),
      session.onChanged(soon),
      vscode.window.onDidChangeActiveTextEditor(soon),
      vscode.window.onDidChangeTextEditorSelection((event) => {
        if (event.textEditor === vscode.window.activeTextEditor) {
          this.setContext();
        }
      }),
    ];
    soon();
  }

  /** The innermost function, module or pass around the cursor. */
  atCursor(): Target | undefined {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined || this.uri?.toString() !== editor.document.uri.toString()) {
      return undefined;
    }
    const { line } = editor.selection.active;
    const { uri } = editor.document;
    const pass = this.data?.passes.find((known) => holds(known, uri, line));
    const around = (this.data?.functions ?? []).filter((known) => holds(known, uri, line));
    const inner = around.sort((a, b) => size(a.range) - size(b.range))[0];
    const found = pass ? { ...pass, kind: 'pass' } : inner;
    return found && { uri, name: found.name, kind: found.kind };
  }

  /** Why nothing is known of the active document's functions, if that is so. */
  get failure(): string {
    return this.data?.failure ?? '';
  }

  /** All functions of the active document. */
  all(): Target[] {
    return (this.data?.functions ?? []).map(({ uri, name, kind }) => ({ uri: vscode.Uri.parse(uri), name, kind }));
  }

  /** What is known of one function of the active document. */
  known(name: string): FunctionData | undefined {
    return this.data?.functions.find((found) => found.name === name);
  }

  getTreeItem(item: Item): vscode.TreeItem {
    return item.kind === 'function' ? functionItem(item.uri, item.data) : item.kind === 'pass' ? passItem(item.uri, item.data) : detailItem(item);
  }

  getChildren(item?: Item): Item[] {
    const { uri, data } = this;
    if (item === undefined) {
      return uri === undefined || data === undefined
        ? []
        : [
            ...data.functions.map((found): Item => ({ kind: 'function', uri: vscode.Uri.parse(found.uri), data: found })),
            ...data.passes.map((found): Item => ({ kind: 'pass', uri: vscode.Uri.parse(found.uri), data: found })),
          ];
    }
    return item.kind === 'function' ? details(item.uri, item.data) : [];
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.subscriptions.forEach((subscription) => subscription.dispose());
  }

  private refreshSoon(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.refresh(), SETTLED_MS);
  }

  private async refresh(): Promise<void> {
    const document = vscode.window.activeTextEditor?.document;
    if (document?.uri.scheme === SCHEME || (document === undefined && vscode.window.tabGroups.activeTabGroup.activeTab !== undefined)) {
      this.setContext(); // a graph or a panel is about the code that was active before it
      return;
    }
    const turn = (this.turn += 1);
    const uri = document?.languageId === 'python' ? document.uri : undefined;
    const asked = uri !== undefined && this.session.ready;
    const found = asked ? await this.session.request<FunctionsData | null>('fxLsp/functions', { uri: uri.toString() }).catch(() => null) : null;
    if (turn === this.turn) {
      this.uri = uri;
      this.data = found ?? undefined;
      this.view.description = uri?.path.split('/').pop() ?? '';
      this.view.message = this.failure;
      this.changed.fire();
      this.setContext();
    }
  }

  private setContext(): void {
    const target = this.atCursor();
    const document = vscode.window.activeTextEditor?.document; // none while a panel or the tree has the focus
    const { functions = [], passes = [] } = this.data ?? {};
    const known = functions.length > 0 || passes.length > 0 || this.failure !== '';
    const inCode = known && (document === undefined || (document.languageId === 'python' && document.uri.scheme !== SCHEME));
    setContext('fxLsp.inCode', inCode);
    setContext('fxLsp.target', target?.kind ?? '');
  }
}

const contexts = new Map<string, unknown>();

function setContext(key: string, value: unknown): void {
  if (contexts.get(key) !== value) {
    contexts.set(key, value);
    void vscode.commands.executeCommand('setContext', key, value);
  }
}

function functionItem(uri: vscode.Uri, data: FunctionData): vscode.TreeItem {
  const item = new vscode.TreeItem(data.name, vscode.TreeItemCollapsibleState.Collapsed);
  item.id = `${uri.toString()}#${data.name}`;
  item.description = `${data.stale ? 'stale · ' : ''}${data.message || (data.state === 'tracing' ? 'tracing …' : '')}`;
  item.tooltip = data.message;
  item.contextValue = data.state;
  item.iconPath = icon(data);
  item.command = { title: 'Go to', command: 'fx-lsp.openFunction', arguments: [uri.toString(), data.selectionRange] };
  item.accessibilityInformation = { label: `${data.name}, ${data.kind}, ${data.state}, ${data.message}` };
  return item;
}

function icon(data: FunctionData): vscode.ThemeIcon {
  const kinds = { function: 'symbol-function', module: 'symbol-class', method: 'symbol-method', graph: 'type-hierarchy', step: 'sync' };
  if (data.state === 'tracing') {
    return new vscode.ThemeIcon('loading~spin');
  }
  return data.state === 'failed' ? new vscode.ThemeIcon('info', new vscode.ThemeColor('list.warningForeground')) : new vscode.ThemeIcon(kinds[data.kind]);
}

function passItem(uri: vscode.Uri, data: PassData): vscode.TreeItem {
  const item = new vscode.TreeItem(data.name);
  item.id = `${uri.toString()}#pass ${data.name}`;
  item.description = 'pass';
  item.iconPath = new vscode.ThemeIcon('wand');
  item.contextValue = 'pass';
  item.command = { title: 'Run', command: 'fx-lsp.runPass', arguments: [uri.toString(), data.name] };
  return item;
}

function details(uri: vscode.Uri, data: FunctionData): Item[] {
  const command = (name: string, title: string, ...words: string[]): vscode.Command => ({ title, command: name, arguments: [uri.toString(), data.name, ...words] });
  const stages = data.stages.map(
    ({ name, ops }): Item => ({ kind: 'detail', label: name, description: `${ops.toLocaleString('en')} ops${data.state === 'failed' ? ' before it fails' : ''}`, icon: 'list-tree', command: command('fx-lsp.openStage', 'Show', name) }),
  );
  const variants = data.variants.map(
    ({ title, work }): Item => ({ kind: 'detail', label: title, description: 'optional', icon: 'git-branch', command: command('fxLsp.showStage', 'Show', '', work) }),
  );
  const saved: Item[] = data.saved === null ? [] : [{ kind: 'detail', label: 'saved for backward', description: `${data.guessed ? '~' : ''}${formatBytes(data.saved)}`, icon: 'save', command: command('fx-lsp.showMemory', 'Show') }];
  const inputs = data.inputs.map(({ name, spec, shown, source, guessed }): Item => ({ kind: 'detail', label: `${name}: ${guessed ? '~' : ''}${shown ?? spec}`, description: source, icon: 'symbol-parameter' }));
  return [...stages, ...variants, ...saved, ...inputs];
}

function detailItem(item: Extract<Item, { kind: 'detail' }>): vscode.TreeItem {
  const made = new vscode.TreeItem(item.label);
  made.description = item.description;
  made.iconPath = new vscode.ThemeIcon(item.icon);
  if (item.command) {
    made.command = item.command;
  }
  return made;
}

function holds({ uri, range }: Place, document: vscode.Uri, line: number): boolean {
  const isThere = range.start.line <= line && line <= range.end.line;
  return isThere && vscode.Uri.parse(uri).toString() === document.toString(); // in a notebook, of the same cell
}

function size(range: Range): number {
  return range.end.line - range.start.line;
}
