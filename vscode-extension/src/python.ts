// Which Python runs the server, and which one each folder is traced with.

import { execFile } from 'node:child_process';
import * as vscode from 'vscode';

const OLDEST: [number, number] = [3, 10];
const ANSWER_MS = 10_000;
const EXTENSION_MS = 5_000;
const PROBE = 'import sys; print("%d.%d" % sys.version_info[:2])';

/** There is no Python that can run the server; the message says what to do. */
export class NoPython extends Error {}

/** `server` runs the server; `ofFolders` are the interpreters that other extensions have for the folders now. */
export interface Pythons {
  server: string;
  ofFolders(): Promise<[string, string][]>;
}

/** An extension in which the user selects interpreters. */
interface Selection {
  interpreterOf(folder: vscode.Uri): Promise<string | undefined>;
  onDidChange: vscode.Event<unknown>;
}

/** The part of the interface of the Python Environments extension that is used here. */
interface EnvironmentsApi {
  getEnvironment(scope: vscode.Uri): Promise<PythonEnvironment | undefined>;
  resolveEnvironment(environment: PythonEnvironment): Promise<PythonEnvironment | undefined>;
  onDidChangeEnvironment: vscode.Event<unknown>;
}

interface PythonEnvironment {
  execInfo?: { run: { executable: string } };
}

/** The part of the interface of the Python extension that is used here. */
interface PythonApi {
  environments?: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(environment: { path: string } | string): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

/**
 * The Python for the server: the setting's, the one that is selected, else the first on the path that is new enough.
 * `changed` is called when another interpreter is selected for a folder. Throws `NoPython`.
 */
export async function findServerPython(listeners: vscode.Disposable[], changed: () => void): Promise<Pythons> {
  const setting = vscode.workspace.getConfiguration('fx-lsp').get<string>('server.python', '').trim();
  const selections = vscode.workspace.isTrusted ? await selectionsOfExtensions() : [];
  listeners.push(...selections.map((selection) => selection.onDidChange(changed)));
  const ofFolders = () => interpreters(selections);
  if (setting) {
    const version = await versionOf(setting);
    if (version === undefined || isOlder(version)) {
      const what = version === undefined ? 'does not answer' : `is Python ${version.join('.')}`;
      throw new NoPython(`The server of fx-lsp needs Python ${OLDEST.join('.')} or newer; ${setting} (fx-lsp.server.python) ${what}.`);
    }
    return { server: setting, ofFolders };
  }
  const candidates = [...(await ofFolders()).map(([, path]) => path), ...onPath()];
  for (const candidate of new Set(candidates)) {
    const version = await versionOf(candidate);
    if (version !== undefined && !isOlder(version)) {
      return { server: candidate, ofFolders };
    }
  }
  throw new NoPython(
    `The server of fx-lsp needs Python ${OLDEST.join('.')} or newer, and there is none on the path. ` +
      'Install one, select one with Python: Select Interpreter, or set fx-lsp.server.python.',
  );
}

/** The extensions that are installed and answer: the Python Environments extension, then the Python extension. */
async function selectionsOfExtensions(): Promise<Selection[]> {
  const [environments, python] = await Promise.all([
    exportsOf<EnvironmentsApi>('ms-python.vscode-python-envs'),
    exportsOf<PythonApi>('ms-python.python'),
  ]);
  return [
    ...(environments === undefined ? [] : [selectionOfEnvironments(environments)]),
    ...(python?.environments === undefined ? [] : [selectionOfPython(python.environments)]),
  ];
}

/** What an extension exports, once it is active; undefined if it is not installed, is turned off or does not answer. */
async function exportsOf<T>(id: string): Promise<T | undefined> {
  const extension = vscode.extensions.getExtension<T | undefined>(id);
  if (extension === undefined) {
    return undefined;
  }
  const late = new Promise<undefined>((resolve) => setTimeout(resolve, EXTENSION_MS, undefined));
  return Promise.race([Promise.resolve(extension.activate()).catch(() => undefined), late]);
}

function selectionOfEnvironments(api: EnvironmentsApi): Selection {
  return {
    interpreterOf: async (folder) => {
      const selected = await api.getEnvironment(folder);
      const resolved = selected && (selected.execInfo ? selected : await api.resolveEnvironment(selected));
      return resolved?.execInfo?.run.executable;
    },
    onDidChange: api.onDidChangeEnvironment,
  };
}

function selectionOfPython(api: NonNullable<PythonApi['environments']>): Selection {
  return {
    interpreterOf: async (folder) => (await api.resolveEnvironment(api.getActiveEnvironmentPath(folder)))?.executable.uri?.fsPath,
    onDidChange: api.onDidChangeActiveEnvironmentPath,
  };
}

/** The folders of the workspace with the interpreters that are selected for them: the first extension with one counts. */
async function interpreters(selections: Selection[]): Promise<[string, string][]> {
  const selected: [string, string][] = [];
  for (const folder of vscode.workspace.workspaceFolders ?? []) {
    for (const selection of selections) {
      const path = await selection.interpreterOf(folder.uri).catch(() => undefined);
      if (path !== undefined) {
        selected.push([folder.uri.fsPath, path]);
        break;
      }
    }
  }
  return selected;
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
