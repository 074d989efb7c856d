// `fx-lsp:` documents: a read-only file system of views, so that they are restored with the window like any file.

import * as vscode from 'vscode';
import { CELL, SCHEME, type Session } from './session';
import { Highlights } from './highlights';
import { ViewLenses } from './lenses';

export class Documents implements vscode.FileSystemProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<vscode.FileChangeEvent[]>();
  private readonly versions = new Map<string, number>();
  private readonly subscriptions: vscode.Disposable[];

  readonly onDidChangeFile = this.changed.event;

  constructor(private readonly session: Session) {
    this.subscriptions = [
      vscode.workspace.registerFileSystemProvider(SCHEME, this, { isCaseSensitive: true, isReadonly: true }),
      vscode.languages.registerCodeLensProvider({ scheme: SCHEME }, new ViewLenses()),
      session.onView((uri) => this.refresh(uri)),
      new Highlights(session),
    ];
  }

  /** Has VS Code read a view again, in place. */
  refresh(uri: vscode.Uri): void {
    this.versions.set(uri.toString(), Date.now());
    this.changed.fire([{ type: vscode.FileChangeType.Changed, uri }]);
  }

  async readFile(uri: vscode.Uri): Promise<Uint8Array> {
    return new TextEncoder().encode(await this.text(uri));
  }

  stat(uri: vscode.Uri): vscode.FileStat {
    const mtime = this.versions.get(uri.toString()) ?? 0;
    return { type: vscode.FileType.File, ctime: 0, mtime, size: 0, permissions: vscode.FilePermission.Readonly };
  }

  watch(): vscode.Disposable {
    return { dispose: () => undefined };
  }

  readDirectory(): [string, vscode.FileType][] {
    return [];
  }

  createDirectory(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  writeFile(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  delete(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  rename(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  dispose(): void {
    this.subscriptions.forEach((subscription) => subscription.dispose());
  }

  private async text(uri: vscode.Uri): Promise<string> {
    try {
      return (await this.session.request<{ text: string }>('fxLsp/document', { uri: uri.toString() })).text;
    } catch (error) {
      return `# ${error instanceof Error ? error.message : String(error)}\n`;
    }
  }
}

/** Shows a view beside the code, where one is shown already in its place; the cursor stays in the code. */
export async function openView(uri: vscode.Uri): Promise<vscode.TextEditor> {
  void vscode.commands.executeCommand('setContext', 'fxLsp.viewOpened', true);
  const document = await vscode.workspace.openTextDocument(uri);
  return vscode.window.showTextDocument(document, { viewColumn: columnOf(uri), preserveFocus: true, preview: false });
}

/** Shows a place in the code, a cell in its notebook, and returns the editor. */
export async function openPlace(uri: vscode.Uri, selection: vscode.Range, viewColumn?: vscode.ViewColumn): Promise<vscode.TextEditor | undefined> {
  if (uri.scheme !== CELL) {
    return vscode.window.showTextDocument(uri, { selection, ...(viewColumn ? { viewColumn } : {}) });
  }
  await vscode.commands.executeCommand('vscode.open', uri, { selection });
  return vscode.window.visibleTextEditors.find((editor) => editor.document.uri.toString() === uri.toString());
}

/** The column for a view: that of its own tab, of another view, or the one beside the active editor. */
export function columnOf(uri: vscode.Uri): vscode.ViewColumn {
  const groups = vscode.window.tabGroups.all;
  const own = groups.find((group) => group.tabs.some((tab) => uriOf(tab)?.toString() === uri.toString()));
  const active = vscode.window.tabGroups.activeTabGroup;
  const others = groups.filter((group) => group.tabs.some((tab) => uriOf(tab)?.scheme === SCHEME));
  const other = others.find((group) => group !== active) ?? (isView(active) ? active : undefined);
  return (own ?? other)?.viewColumn ?? vscode.ViewColumn.Beside;
}

function isView(group: vscode.TabGroup): boolean {
  return group.activeTab !== undefined && uriOf(group.activeTab)?.scheme === SCHEME;
}

function uriOf(tab: vscode.Tab): vscode.Uri | undefined {
  const input = tab.input;
  return input instanceof vscode.TabInputText ? input.uri : input instanceof vscode.TabInputTextDiff ? input.modified : undefined;
}
