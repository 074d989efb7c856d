// One server and what the rest of the extension needs of it: requests, what it tells, whether it runs.

import * as vscode from 'vscode';
import type { LanguageClient } from 'vscode-languageclient/node';
import type { Status } from './data';
import type { Log } from './log';
import type { Measuring } from './measured';
import { findServerPython, NoPython, type Pythons } from './python';

export const SCHEME = 'fx-lsp';
/** The scheme of the cells of notebooks, which are documents of their own. */
export const CELL = 'vscode-notebook-cell';
export const SECTION = 'fx-lsp';

/** The title of the progress of tracing; a benchmark's names what is measured. */
const TRACING = 'fx-lsp';

type Token = string | number;

export class Session implements vscode.Disposable {
  private readonly statusEmitter = new vscode.EventEmitter<Status>();
  private readonly changedEmitter = new vscode.EventEmitter<vscode.Uri[]>();
  private readonly measuringEmitter = new vscode.EventEmitter<Measuring>();
  private readonly viewEmitter = new vscode.EventEmitter<vscode.Uri>();
  private readonly readyEmitter = new vscode.EventEmitter<boolean>();
  private client: LanguageClient | undefined;
  private starting: Promise<LanguageClient | undefined> | undefined;
  private readonly listeners: vscode.Disposable[] = [];
  private readonly ofPythons: vscode.Disposable[] = [];
  private pythons: Pythons | undefined;

  /** The status that the server sent last. */
  status: Status = { health: 'ok', quiescent: true, message: '' };

  /** What stops the traces that are running, while some are. */
  tracing: Token | undefined;
  /** The benchmarks that are running, by the URIs of their pages. */
  readonly measuring = new Map<string, Measuring>();

  readonly onStatus = this.statusEmitter.event;
  /** What is known of these documents has changed. */
  readonly onChanged = this.changedEmitter.event;
  /** A benchmark is further, or over. */
  readonly onMeasuring = this.measuringEmitter.event;
  /** A view has another text now. */
  readonly onView = this.viewEmitter.event;
  readonly onReady = this.readyEmitter.event;

  constructor(
    readonly context: vscode.ExtensionContext,
    readonly output: Log,
  ) {
    this.listeners.push(
      vscode.workspace.onDidGrantWorkspaceTrust(() => void this.reconfigure()),
      vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration(`${SECTION}.server.python`) || event.affectsConfiguration(`${SECTION}.enable`)) {
          void this.restart();
        }
      }),
    );
  }

  get ready(): boolean {
    return this.client !== undefined;
  }

  /** The Python that runs the server, once it is found. */
  get python(): string {
    return this.pythons?.server ?? '';
  }

  /** The folder of the server that the extension carries. */
  get serverFolder(): string {
    return this.context.asAbsolutePath('server');
  }

  /** Starts the server; several calls start it once. Undefined where there is no Python to run it. */
  start(): Promise<LanguageClient | undefined> {
    this.starting ??= this.run();
    return this.starting;
  }

  /** Ends the server and starts it again. */
  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  async stop(): Promise<void> {
    const former = await this.starting?.catch(() => undefined);
    this.setClient(undefined);
    await former?.stop().catch((error: unknown) => this.log(`The server did not stop cleanly: ${String(error)}`));
    this.starting = undefined;
  }

  /** The interpreter that a folder is traced with, if a setting names it, or it is selected in another extension. */
  async interpreterOf(folder: vscode.WorkspaceFolder | undefined): Promise<string | undefined> {
    const chosen = vscode.workspace.getConfiguration(SECTION, folder).get<string>('interpreter', '').trim();
    if (chosen) {
      return chosen;
    }
    const selected = vscode.workspace.isTrusted ? ((await this.pythons?.ofFolders()) ?? []) : [];
    return selected.find(([path]) => path === folder?.uri.fsPath)?.[1];
  }

  /** A request, once the server runs. Rejects where it cannot be started, or answers with an error. */
  async request<T>(method: string, params: unknown, token?: vscode.CancellationToken): Promise<T> {
    const client = await this.start();
    if (client === undefined) {
      throw new Error('fx-lsp is not running');
    }
    return token === undefined ? client.sendRequest<T>(method, params) : client.sendRequest<T>(method, params, token);
  }

  /** A command of the server. */
  execute<T>(command: string, ...words: unknown[]): Promise<T> {
    return this.request<T>('workspace/executeCommand', { command, arguments: words });
  }

  /** Stops what is being traced. */
  async stopTracing(): Promise<void> {
    if (this.tracing !== undefined) {
      await this.client?.sendNotification('window/workDoneProgress/cancel', { token: this.tracing });
    }
  }

  log(line: string): void {
    this.output.appendLine(line);
  }

  /** Called by the client with what the server sends. */
  tellStatus(status: Status): void {
    this.status = status;
    this.statusEmitter.fire(status);
  }

  tellChanged(uris: string[]): void {
    this.changedEmitter.fire(uris.map((uri) => vscode.Uri.parse(uri)));
  }

  tellMeasuring(told: Measuring): void {
    if (told.running.length) {
      this.measuring.set(told.uri, told);
    } else {
      this.measuring.delete(told.uri);
    }
    void vscode.commands.executeCommand('setContext', 'fxLsp.measuring', this.measuring.size > 0);
    this.measuringEmitter.fire(told);
  }

  /** A progress of the server. Whether it is tracing's, which the status item shows, and its menu stops. */
  tellProgress(token: Token, kind: string, title: string | undefined): boolean {
    if (kind === 'begin' && title === TRACING) {
      this.tracing = token;
    }
    const known = token === this.tracing;
    if (known && kind === 'end') {
      this.tracing = undefined;
    }
    return known;
  }

  tellView(uri: string): void {
    this.viewEmitter.fire(vscode.Uri.parse(uri));
  }

  setClient(client: LanguageClient | undefined): void {
    if ((client === undefined) !== (this.client === undefined)) {
      void vscode.commands.executeCommand('setContext', 'fxLsp.ready', client !== undefined);
      [...this.measuring.values()].forEach((told) => this.tellMeasuring({ ...told, running: [] })); // it ended with its server
      this.tracing = undefined;
    }
    this.client = client;
    this.readyEmitter.fire(client !== undefined);
  }

  dispose(): void {
    [...this.listeners, ...this.ofPythons].forEach((listener) => listener.dispose());
  }

  private async reconfigure(): Promise<void> {
    const client = await this.starting;
    await client?.sendNotification('workspace/didChangeConfiguration', { settings: null });
  }

  private async run(): Promise<LanguageClient | undefined> {
    let pythons: Pythons;
    try {
      this.ofPythons.splice(0).forEach((listener) => listener.dispose());
      pythons = await findServerPython(this.ofPythons, () => void this.reconfigure());
    } catch (error) {
      this.starting = undefined;
      this.tellStatus({ health: 'error', quiescent: true, message: error instanceof Error ? error.message : String(error) });
      void this.explain(error);
      return undefined;
    }
    this.pythons = pythons;
    this.log(`Running the server with ${pythons.server}`);
    const { startClient } = await import('./client');
    try {
      return await startClient(this, pythons);
    } catch (error) {
      this.starting = undefined;
      this.log(`The server did not start: ${String(error)}`);
      this.tellStatus({ health: 'error', quiescent: true, message: 'the server did not start; see its log' });
      return undefined;
    }
  }

  private async explain(error: unknown): Promise<void> {
    const message = error instanceof NoPython ? error.message : `fx-lsp cannot find a Python: ${String(error)}`;
    this.log(message);
    const [settings, again] = ['Open Settings', 'Try Again'];
    const chosen = await vscode.window.showErrorMessage(message, settings, again);
    if (chosen === settings) {
      await vscode.commands.executeCommand('workbench.action.openSettings', `${SECTION}.server.python`);
    } else if (chosen === again) {
      await this.start();
    }
  }
}
