// Commands of the command line, each in a terminal of its own.

import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import * as vscode from 'vscode';
import { SECTION, type Session } from './session';

const PATIENCE_MS = 120_000;
const WINDOWS = process.platform === 'win32';

/** Runs `fx-lsp` with these words in a folder: that of the active editor, unless another is named. */
export async function runTask(session: Session, name: string, words: string[], inside?: vscode.WorkspaceFolder): Promise<void> {
  if ((await session.start()) === undefined) {
    return;
  }
  const folder = inside ?? activeFolder();
  const { program, args, options } = await commandLine(session, words, folder);
  const execution = new vscode.ProcessExecution(program, args, options);
  const task = new vscode.Task({ type: SECTION, command: name }, folder ?? vscode.TaskScope.Workspace, name, 'fx-lsp', execution, []);
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Always, panel: vscode.TaskPanelKind.Dedicated, clear: true, focus: false };
  await vscode.tasks.executeTask(task);
}

/** What `fx-lsp` prints for these words in the folder of the active editor, whatever its exit code. */
export async function outputOf(session: Session, words: string[], token: vscode.CancellationToken): Promise<string> {
  const { program, args, options } = await commandLine(session, words, activeFolder());
  const env = { ...process.env, ...options.env };
  return new Promise((resolve) => {
    const child = execFile(program, args, { ...options, env, timeout: PATIENCE_MS, windowsHide: true }, (_, stdout) => resolve(stdout));
    token.onCancellationRequested(() => child.kill());
  });
}

/** The process that runs `fx-lsp` with the interpreter of a folder. */
async function commandLine(session: Session, words: string[], folder: vscode.WorkspaceFolder | undefined) {
  const interpreter = await session.interpreterOf(folder);
  const options: { cwd?: string; env?: Record<string, string> } = {};
  if (folder !== undefined) {
    options.cwd = folder.uri.fsPath;
  }
  if (interpreter !== undefined) {
    options.env = { [pathName()]: [binaries(interpreter), process.env[pathName()]].filter(Boolean).join(delimiter) };
  }
  const python = interpreter !== undefined && TAKE_INTERPRETER.has(words[0] ?? '') ? ['--python', interpreter] : [];
  return { program: session.python, args: [session.serverFolder, ...words, ...python], options };
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
