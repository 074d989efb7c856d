// The language client: how the server is started, what it is told, and where what it shows is opened.

import * as vscode from 'vscode';
import { type ConfigurationParams, LanguageClient, type LanguageClientOptions } from 'vscode-languageclient/node';
import type { Command, Status } from './data';
import { openPlace, openView } from './documents';
import type { Measuring } from './measured';
import type { Pythons } from './python';
import { CELL, SCHEME, SECTION, type Session } from './session';
import { parseView } from './views';

const LINKS = ['fxLsp.showStage', 'fxLsp.pinInputs', 'fxLsp.showMemory'];
const BENCH = 'fxLsp.bench';
const MENU = 'fxLsp.menu';

/** A client whose server answers. */
export async function startClient(session: Session, pythons: Pythons): Promise<LanguageClient> {
  const client = new LanguageClient(SECTION, 'fx-lsp', serverOptions(session, pythons), clientOptions(session, pythons));
  client.onNotification('fxLsp/status', (status: Status) => session.tellStatus(status));
  client.onNotification('fxLsp/changed', (params: { uris: string[] }) => session.tellChanged(params.uris));
  client.onNotification('fxLsp/measuring', (params: Measuring) => session.tellMeasuring(params));
  client.onRequest('workspace/textDocumentContent/refresh', (params: { uri: string }) => {
    session.tellView(params.uri);
    return null;
  });
  await client.start();
  session.setClient(client);
  return client;
}

function serverOptions(session: Session, pythons: Pythons) {
  // Not `-I`: packages on PYTHONPATH are the user's, and are handed on to the interpreter that traces.
  return { command: pythons.server, args: [session.serverFolder, 'serve'] };
}

function clientOptions(session: Session, pythons: Pythons): LanguageClientOptions {
  return {
    documentSelector: [
      { scheme: 'file', language: 'python' },
      { scheme: 'untitled', language: 'python' },
      { scheme: CELL, language: 'python' }, // sent with its notebook
      { scheme: SCHEME },
    ],
    outputChannel: session.output,
    traceOutputChannel: session.output.channel, // messages have the text of documents, which no report may have
    initializationOptions: { virtualDocuments: true, commandLinks: true, changes: true, trusted: vscode.workspace.isTrusted },
    markdown: { isTrusted: { enabledCommands: LINKS } },
    middleware: {
      didOpen: async (document, next) => {
        if (isEnabled(document.uri)) {
          await next(document);
        }
      },
      notebooks: {
        didOpen: async (notebook, cells, next) => {
          if (isEnabled(notebook.uri)) {
            await next(notebook, cells);
          }
        },
      },
      handleWorkDoneProgress: (token, value, next) => {
        if (!session.tellProgress(token, value.kind, 'title' in value ? value.title : undefined)) {
          next(token, value);
        }
      },
      // A lens or a link that measures, and the lens with a menu: both ask here.
      executeCommand: (command, words: unknown[], next) =>
        command === BENCH
          ? vscode.commands.executeCommand('fx-lsp.bench', ...words)
          : command === MENU
            ? showMenu(words)
            : next(command, words),
      workspace: {
        configuration: async (params: ConfigurationParams, token, next) => {
          const answers = await next(params, token);
          return Array.isArray(answers)
            ? Promise.all(answers.map((answer, i) => (params.items[i]?.section === SECTION ? withOurs(answer, pythons) : answer)))
            : answers;
        },
      },
      window: {
        showDocument: async (params, next) => {
          const uri = vscode.Uri.parse(params.uri);
          if (parseView(uri)?.work === 'benchmark') {
            await vscode.commands.executeCommand('fx-lsp.showBenchmark', uri.toString()); // this module is a file of its own
            return { success: true };
          }
          if (uri.scheme === SCHEME) {
            await openView(uri);
            return { success: true };
          }
          if (uri.scheme === CELL && params.selection) {
            const { start, end } = params.selection;
            await openPlace(uri, new vscode.Range(start.line, start.character, end.line, end.character));
            return { success: true };
          }
          const answer = await next(params, new vscode.CancellationTokenSource().token);
          return 'success' in answer ? answer : { success: false };
        },
      },
    },
  };
}

/** Lets the user pick one of a function's commands, and runs it. */
async function showMenu(words: unknown[]): Promise<unknown> {
  const offered = await vscode.commands.executeCommand<Command[]>('fxLsp.commands', ...words);
  const compare: Command = { title: 'compare…', command: 'fx-lsp.compareGraphs', arguments: words, tooltip: 'Several graphs beside each other' };
  const items = [...offered, ...(offered.length ? [compare] : [])].map((command) => ({ label: command.title, detail: command.tooltip ?? '', command }));
  const chosen = await vscode.window.showQuickPick(items, { placeHolder: `${String(words[1])}: show …`, matchOnDetail: true });
  return chosen && vscode.commands.executeCommand(chosen.command.command, ...(chosen.command.arguments ?? []));
}

/** The user's settings, with what only the extension knows. */
async function withOurs(answer: unknown, pythons: Pythons): Promise<unknown> {
  const settings = typeof answer === 'object' && answer !== null ? answer : {};
  return {
    ...settings,
    virtualDocuments: true,
    commandLinks: true,
    changes: true,
    trusted: vscode.workspace.isTrusted,
    interpreters: vscode.workspace.isTrusted ? await pythons.ofFolders() : [],
  };
}

function isEnabled(uri: vscode.Uri): boolean {
  return vscode.workspace.getConfiguration(SECTION, uri).get<boolean>('enable', true);
}
