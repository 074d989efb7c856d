// Which Python runs the server, and which one each folder is traced with.

import { execFile } from 'node:child_process';
import * as vscode from 'vscode';

const OLDEST: [number, number] = [3, 10];
const ANSWER_MS = 10_000;
const EXTENSION_MS = 5_000;
const PROBE = 'import sys; print("%d.%d" % sys.version_info[:2])';

/** There is no Python that can run the server; the message says what to do. */
export class NoPython extends Error {}

/** `server` runs the server; `ofFolders` are the interpreters that the Python extension has for the folders now. */
export interface Pythons {
  server: string;
  ofFolders(): Promise<[string, string][]>;
}

/** The part of the Python extension's interface that is used here. */
interface Environments {
  getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
  resolveEnvironment(
    environment: { path: string } | string,
  ): Promise<{ executable: { uri?: vscode.Uri }; version?: { major: number; minor: number } } | undefined>;
  onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
}

/**
 * The Python for the server: the setting's, the Python extension's, else the first on the path that is new enough.
 * `changed` is called when the Python extension has another interpreter for a folder. Throws `NoPython`.
 */
export async function findServerPython(listeners: vscode.Disposable[], changed: () => void): Promise<Pythons> {
  const setting = vscode.workspace.getConfiguration('fx-lsp').get<string>('server.python', '').trim();
  const environments = vscode.workspace.isTrusted ? await pythonExtension() : undefined;
  if (environments !== undefined) {
    listeners.push(environments.onDidChangeActiveEnvironmentPath(changed));
  }
  const ofFolders = () => interpreters(environments);
  if (setting) {
    const version = await versionOf(setting);
    if (version === undefined || isOlder(version)) {
      const what = version === undefined ? 'does not answer' : `is Python ${version.join('.')}`;
      throw new NoPython(`The server of fx-lsp needs Python ${OLDEST.join('.')} or newer; ${setting} (fx-lsp.server.python) ${what}.`);
    }
    return { server: setting, ofFolders };
  }
  const candidates = [...(await interpreters(environments)).map(([, path]) => path), ...onPath()];
  for (const candidate of new Set(candidates)) {
    const version = await versionOf(candidate);
    if (version !== undefined && !isOlder(version)) {
      return { server: candidate, ofFolders };
    }
  }
  throw new NoPython(
    `The server of fx-lsp needs Python ${OLDEST.join('.')} or newer, and there is none on the path. ` +
      'Install one, select one in the Python extension, or set fx-lsp.server.python.',
  );
}

async function pythonExtension(): Promise<Environments | undefined> {
  const extension = vscode.extensions.getExtension<{ environments?: Environments }>('ms-python.python');
  if (extension === undefined) {
    return undefined;
  }
  const late = new Promise<undefined>((resolve) => setTimeout(resolve, EXTENSION_MS, undefined));
  const found = await Promise.race([Promise.resolve(extension.activate()).catch(() => undefined), late]);
  return found?.environments;
}

/** The folders of the workspace with the interpreters that the Python extension has for them. */
async function interpreters(environments: Environments | undefined): Promise<[string, string][]> {
  const found: [string, string][] = [];
  if (environments === undefined) {
    return found;
  }
  for (const folder of vscode.workspace.workspaceFolders ?? []) {
    const active = environments.getActiveEnvironmentPath(folder.uri);
    const resolved = await environments.resolveEnvironment(active).catch(() => undefined);
    const path = resolved?.executable.uri?.fsPath;
    if (path !== undefined) {
      found.push([folder.uri.fsPath, path]);
    }
  }
  return found;
}

function onPath(): string[] {
  return process.platform === 'win32' ? ['python', 'py', 'python3'] : ['python3', 'python'];
}

function versionOf(python: string): Promise<[number, number] | undefined> {
  return new Promise((resolve) => {
    execFile(python, ['-I', '-c', PROBE], { timeout: ANSWER_MS, windowsHide: true }, (error, stdout) => {
      const found = /^(\d+)\.(\d+)\s*$/.exec(stdout);
      resolve(error === null && found ? [Number(found[1]), Number(found[2])] : undefined);
    });
  });
}

function isOlder([major, minor]: [number, number]): boolean {
  return major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
}
