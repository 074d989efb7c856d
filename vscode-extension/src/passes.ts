// The passes of the compiler in the diff editor, one after the other.

import * as vscode from 'vscode';
import type { PassStep } from './data';
import { columnOf } from './documents';
import { SCHEME, type Session } from './session';
import { parseView } from './views';

const PASSES = 'passes';

export class Passes implements vscode.Disposable {
  private readonly known = new Map<string, PassStep[]>();
  private readonly subscriptions: vscode.Disposable[];

  constructor(private readonly session: Session) {
    const setContext = () => void vscode.commands.executeCommand('setContext', 'fxLsp.inPassDiff', shownDiff() !== undefined);
    this.subscriptions = [
      vscode.window.tabGroups.onDidChangeTabs(setContext),
      vscode.window.tabGroups.onDidChangeTabGroups(setContext),
      session.onChanged(() => this.known.clear()),
    ];
    setContext();
  }

  /** Lets the user choose among the passes that changed something, and shows what the chosen one changed. */
  async choose(uri: vscode.Uri, name: string, work = PASSES): Promise<void> {
    const steps = await vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title: 'fx-lsp: running the compiler’s passes' }, () => this.steps(uri, name, work));
    const changing = steps.filter((step) => !step.unchanged);
    if (changing.length === 0) {
      return;
    }
    const items = changing.map((step) => ({
      label: step.stage,
      description: step.change || (step.ops ? `${step.ops.toLocaleString('en')} ops` : ''),
      detail: step.note || step.title,
      step,
    }));
    const quiet = steps.length - changing.length;
    const placeHolder = quiet ? `${quiet} more passes changed nothing` : 'what a pass changed';
    const chosen = await vscode.window.showQuickPick(items, { title: `Compiler passes of ${name || 'the target'}`, placeHolder, matchOnDescription: true, matchOnDetail: true });
    if (chosen) {
      await this.show(chosen.step, steps);
    }
  }

  /** Goes from the pass that the active diff shows to the next one that changed something, or to the one before. */
  async go(by: 1 | -1): Promise<void> {
    const uri = shownDiff();
    const view = uri && parseView(uri);
    if (uri === undefined || view === undefined) {
      return;
    }
    const steps = await this.steps(uri, '', view.work);
    const diffs = steps.filter((step) => step.diff !== null && !step.unchanged);
    const next = diffs[diffs.findIndex((step) => same(step.uri, uri)) + by];
    if (next === undefined) {
      void vscode.window.setStatusBarMessage(`fx-lsp: no pass ${by > 0 ? 'after' : 'before'} this one changed anything`, 4000);
      return;
    }
    await this.show(next, steps);
  }

  dispose(): void {
    this.subscriptions.forEach((subscription) => subscription.dispose());
  }

  private async show(step: PassStep, steps: PassStep[]): Promise<void> {
    const after = vscode.Uri.parse(step.uri);
    const before = steps.find((other) => other.stage === step.before);
    if (step.diff === null || before === undefined) {
      await vscode.window.showTextDocument(after, { viewColumn: columnOf(after), preview: true });
      return;
    }
    const place = steps.filter((other) => other.diff !== null && !other.unchanged);
    const title = `${parseView(after)?.name ?? ''} · ${step.stage} (${place.indexOf(step) + 1} of ${place.length})`;
    await vscode.commands.executeCommand('vscode.diff', vscode.Uri.parse(before.uri), after, title, { preview: true });
  }

  private async steps(uri: vscode.Uri, name: string, work: string): Promise<PassStep[]> {
    const view = parseView(uri);
    const key = view ? `${view.file.toString()}#${view.name}#${work}` : `${uri.toString()}#${name}#${work}`;
    const known = this.known.get(key);
    if (known !== undefined) {
      return known;
    }
    const words = view ? [view.file.toString(), view.name, work] : [uri.toString(), name, work];
    if (view) {
      await vscode.workspace.openTextDocument(view.file);
    }
    const found = (await this.session.execute<PassStep[] | null>('fxLsp.passes', ...words)) ?? [];
    if (found.length) {
      this.known.set(key, found);
    }
    return found;
  }
}

/** The stage at the right of the diff of two stages that is the active editor. */
function shownDiff(): vscode.Uri | undefined {
  const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
  return input instanceof vscode.TabInputTextDiff && input.modified.scheme === SCHEME ? input.modified : undefined;
}

function same(uri: string, other: vscode.Uri): boolean {
  return vscode.Uri.parse(uri).toString() === other.toString();
}
