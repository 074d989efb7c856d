// Commands of the command line, each in a terminal of its own.

import * as vscode from 'vscode';
import { SECTION, type Session } from './session';

/** Runs `fx-lsp` with these words, in the folder of the active editor. */
export async function runTask(session: Session, name: string, words: string[]): Promise<void> {
  if ((await session.start()) === undefined) {
    return;
  }
  const uri = vscode.window.activeTextEditor?.document.uri;
  const folder = (uri && vscode.workspace.getWorkspaceFolder(uri)) ?? vscode.workspace.workspaceFolders?.[0];
  const options = folder ? { cwd: folder.uri.fsPath } : {};
  const execution = new vscode.ProcessExecution(session.python, [session.serverFolder, ...words], options);
  const task = new vscode.Task({ type: SECTION, command: name }, folder ?? vscode.TaskScope.Workspace, name, 'fx-lsp', execution, []);
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Always, panel: vscode.TaskPanelKind.Dedicated, clear: true, focus: false };
  await vscode.tasks.executeTask(task);
}
