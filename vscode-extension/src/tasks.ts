// Commands of the command line, each in a terminal of its own.

import { existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import * as vscode from 'vscode';
import { SECTION, type Session } from './session';

const WINDOWS = process.platform === 'win32';

/** Runs `fx-lsp` with these words in a folder: that of the active editor, unless another is named. */
export async function runTask(session: Session, name: string, words: string[], inside?: vscode.WorkspaceFolder): Promise<void> {
  if ((await session.start()) === undefined) {
    return;
  }
  const folder = inside ?? activeFolder();
  const interpreter = await session.interpreterOf(folder);
  const options: vscode.ProcessExecutionOptions = {};
  if (folder !== undefined) {
    options.cwd = folder.uri.fsPath;
  }
  if (interpreter !== undefined) {
    options.env = { [pathName()]: [binaries(interpreter), process.env[pathName()]].filter(Boolean).join(delimiter) };
  }
  const python = interpreter !== undefined && TAKE_INTERPRETER.has(words[0] ?? '') ? ['--python', interpreter] : [];
  const execution = new vscode.ProcessExecution(session.python, [session.serverFolder, ...words, ...python], options);
  const task = new vscode.Task({ type: SECTION, command: name }, folder ?? vscode.TaskScope.Workspace, name, 'fx-lsp', execution, []);
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Always, panel: vscode.TaskPanelKind.Dedicated, clear: true, focus: false };
  await vscode.tasks.executeTask(task);
}

/** The words of a command, as a shell would take them apart: what is quoted is one, without its quotes. */
export function wordsOf(command: string): string[] {
  const words = command.match(/(?:[^\s"']|"[^"]*"|'[^']*')+/g) ?? [];
  return words.map((word) => word.replace(/"([^"]*)"|'([^']*)'/g, '$1$2'));
}

const TAKE_INTERPRETER = new Set(['check', 'doctor']);

function activeFolder(): vscode.WorkspaceFolder | undefined {
  const uri = vscode.window.activeTextEditor?.document.uri;
  return (uri && vscode.workspace.getWorkspaceFolder(uri)) ?? vscode.workspace.workspaceFolders?.[0];
}

/** Where the programs of an environment are, by its interpreter or its folder. */
function binaries(interpreter: string): string {
  const inside = join(interpreter, WINDOWS ? 'Scripts' : 'bin');
  return existsSync(inside) ? inside : dirname(interpreter);
}

/** What the search path is called here: Windows takes it in any case, but keeps its own. */
function pathName(): string {
  return Object.keys(process.env).find((name) => name.toUpperCase() === 'PATH') ?? 'PATH';
}
