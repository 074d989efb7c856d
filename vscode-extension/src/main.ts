// What VS Code starts: it registers what is cheap, and loads the language client once something needs it.

import * as vscode from 'vscode';
import { registerCommands } from './commands';
import { Documents } from './documents';
import { Functions } from './functions';
import { Heat } from './heat';
import { Log } from './log';
import { registerPanels } from './panels';
import { Session } from './session';
import { StatusItem } from './status';

let session: Session | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const output = new Log(vscode.window.createOutputChannel('fx-lsp'));
  session = new Session(context, output);
  const documents = new Documents(session);
  const functions = new Functions(session);
  context.subscriptions.push(output, session, documents, functions, new StatusItem(session), new Heat(session));
  registerPanels(context, session);
  registerCommands(context, session, functions, documents);
  const started = session;
  setImmediate(() => void started.start()); // starting a process takes longer than all of the above
}

/** VS Code waits for the server to end before it takes away what it writes to. */
export function deactivate(): Promise<void> {
  return session?.stop() ?? Promise.resolve();
}
