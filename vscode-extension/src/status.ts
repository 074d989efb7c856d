// The status item: how the server fares, and a menu.

import * as vscode from 'vscode';
import { formatBytes } from './data';
import { SCHEME, type Session } from './session';

/** A trace that is over sooner is not shown: the item would flicker with every key. */
const BUSY_MS = 800;

const PICK = 'fx-lsp.pickInterpreter';

export class StatusItem implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem('fx-lsp.status', vscode.StatusBarAlignment.Left, 5);
  private readonly subscriptions: vscode.Disposable[];
  private told = false;
  private busy = true;
  private timer: NodeJS.Timeout | undefined;
  private shown = false;

  constructor(private readonly session: Session) {
    this.item.name = 'fx-lsp';
    this.item.command = 'fx-lsp.menu';
    const update = () => this.update();
    this.subscriptions = [
      this.item,
      session.onStatus(() => this.statusChanged()),
      session.onReady(update),
      vscode.window.onDidChangeVisibleTextEditors(update),
      vscode.workspace.onDidGrantWorkspaceTrust(update),
    ];
    update();
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.subscriptions.forEach((subscription) => subscription.dispose());
  }

  private statusChanged(): void {
    const { health, quiescent } = this.session.status;
    if (quiescent || health !== 'ok' || this.busy) {
      clearTimeout(this.timer);
      this.timer = undefined;
      this.busy = !quiescent;
      this.update();
    } else {
      this.timer ??= setTimeout(() => {
        this.timer = undefined;
        this.busy = true;
        this.update();
      }, BUSY_MS);
    }
  }

  private update(): void {
    const visible = vscode.window.visibleTextEditors; // none where a panel fills the window
    this.shown = visible.length > 0 ? visible.some(isOurs) : this.shown;
    if (!this.shown) {
      this.item.hide();
      return;
    }
    const { health, quiescent, message } = this.session.status;
    const trusted = vscode.workspace.isTrusted;
    const busy = (this.busy && !quiescent) || !this.session.ready;
    const icon = health === 'error' ? 'error' : !trusted ? 'shield' : busy ? 'sync~spin' : health === 'warning' ? 'warning' : 'check';
    this.item.text = `$(${icon}) fx-lsp${busy && message ? `: ${short(message)}` : ''}`;
    this.item.tooltip = tooltip(this.session, trusted);
    const shown = health === 'error' ? 'errorBackground' : health === 'warning' && trusted ? 'warningBackground' : undefined;
    this.item.backgroundColor = shown === undefined ? undefined : new vscode.ThemeColor(`statusBarItem.${shown}`);
    this.item.accessibilityInformation = { label: `fx-lsp, ${health}${message ? `, ${message}` : ''}` };
    this.item.show();
    if (!trusted && !this.told) {
      this.told = true;
      void tellAboutTrust();
    }
  }
}

function isOurs({ document }: vscode.TextEditor): boolean {
  return document.languageId === 'python' || document.uri.scheme === SCHEME;
}

/** What can be done with the server, for a person to choose from. */
export async function showMenu(session: Session): Promise<void> {
  const { health, message, quiescent } = session.status;
  const state = message || (session.ready ? (quiescent ? 'everything is traced' : 'tracing') : 'not running');
  const entry = (label: string, command: string, description = '', ...words: unknown[]) => ({ label, command, description, words });
  const separator = { label: '', kind: vscode.QuickPickItemKind.Separator, command: '', words: [] };
  const items = [
    entry(`$(${health === 'ok' ? 'check' : health}) ${state}`, 'fx-lsp.showLog', costOf(session) || 'show the log'),
    ...(session.tracing === undefined ? [] : [entry('$(debug-stop) Stop tracing', 'fx-lsp.stopTracing')]),
    ...[...session.measuring.values()].map((told) => entry(`$(debug-stop) Stop benchmark of ${told.name}`, 'fx-lsp.stopBench', '', told.uri)),
    separator,
    entry('$(type-hierarchy) Show graph at cursor', 'fx-lsp.showGraph'),
    entry('$(symbol-numeric) Show or hide shapes', 'fx-lsp.toggleShapes'),
    entry('$(symbol-color) Show or hide colors of linked lines', 'fx-lsp.toggleColors'),
    entry('$(flame) Show or hide costs by line', 'fx-lsp.toggleLineCosts'),
    separator,
    entry('$(snake) Pick interpreter', PICK, interpretersOf(session)),
    entry('$(refresh) Restart server', 'fx-lsp.restartServer'),
    entry('$(trash) Clear cache', 'fx-lsp.clearCache'),
    entry('$(pulse) Doctor', 'fx-lsp.doctor', 'interpreters, versions, what is missing'),
    entry('$(copy) Copy report for an issue', 'fx-lsp.copyReport', 'versions, settings, the end of the log'),
    entry('$(settings-gear) Settings', 'workbench.action.openSettings', '', '@ext:fx-lsp.fx-lsp'),
    entry('$(book) Walkthrough', 'fx-lsp.walkthrough'),
    ...(vscode.workspace.isTrusted ? [] : [entry('$(shield) Manage workspace trust', 'workbench.trust.manage')]),
  ];
  const chosen = await vscode.window.showQuickPick(items, { title: 'fx-lsp', placeHolder: state });
  if (chosen?.command) {
    await vscode.commands.executeCommand(chosen.command, ...chosen.words);
  }
}

async function tellAboutTrust(): Promise<void> {
  const manage = 'Manage Workspace Trust';
  const chosen = await vscode.window.showInformationMessage(
    'fx-lsp traces nothing here, because this workspace is not trusted: it would run the code on fake tensors to show graphs, shapes, memory and kernels. ' +
      'Functions are listed, and # fx: comments are checked and completed.',
    manage,
  );
  if (chosen === manage) {
    await vscode.commands.executeCommand('workbench.trust.manage');
  }
}

function tooltip(session: Session, trusted: boolean): vscode.MarkdownString {
  const { health, quiescent, message } = session.status;
  const lines = [
    trusted ? '' : 'Not trusted: no code of this workspace runs.',
    message || (session.ready ? (quiescent ? 'Everything is traced.' : 'Tracing …') : 'Starting …'),
    health === 'ok' ? '' : 'Click for the log and more.',
    costOf(session),
    interpretersOf(session),
    session.python ? `Server: ${session.python}` : '',
  ];
  const text = new vscode.MarkdownString();
  text.isTrusted = { enabledCommands: [PICK] };
  lines.filter(Boolean).forEach((line) => text.appendText(`${line}\n\n`));
  return session.ready ? text.appendMarkdown(`[Pick interpreter](command:${PICK})`) : text;
}

/** What the processes of the server cost. */
function costOf(session: Session): string {
  const { processes } = session.status;
  return processes ? `${processes.count} process${processes.count === 1 ? '' : 'es'} of fx-lsp, ${formatBytes(processes.bytes)} of memory` : '';
}

/** Which Python traces each folder, and why. */
function interpretersOf(session: Session): string {
  const { interpreters = [] } = session.status;
  return interpreters.map(({ folder, path, reason }) => `${interpreters.length > 1 ? `${folder}: ` : ''}${path} (${reason})`).join(', ');
}

function short(message: string): string {
  return message.length > 40 ? `${message.slice(0, 39)}…` : message;
}
