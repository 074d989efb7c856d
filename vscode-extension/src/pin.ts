// Inputs of a function as a comment in the code.

import * as vscode from 'vscode';
import { openPlace } from './documents';
import type { Functions } from './functions';

const COMMENT = /^\s*# fx: ?/;

/** Writes down what a function was traced with, and puts the cursor there; goes to the comment that there is already. */
export async function pinInputs(functions: Functions, uri: vscode.Uri, name: string): Promise<void> {
  const known = functions.known(name);
  if (known === undefined) {
    await vscode.window.showTextDocument(uri);
    return;
  }
  const code = vscode.Uri.parse(known.uri); // a cell, if `uri` is its notebook
  const { start } = known.selectionRange;
  const place = new vscode.Range(start.line, start.character, start.line, start.character);
  const editor = await openPlace(code, place);
  if (editor === undefined) {
    return;
  }
  const actions = await vscode.commands.executeCommand<vscode.CodeAction[]>('vscode.executeCodeActionProvider', code, place);
  const pin = actions.find((action) => action.edit?.has(code) && /inputs/i.test(action.title));
  if (pin?.edit) {
    await vscode.workspace.applyEdit(pin.edit);
  }
  const first = Math.max(known.range.start.line - 3, 0);
  const last = Math.min(start.line + 6, editor.document.lineCount - 1);
  for (let line = first; line <= last; line += 1) {
    const found = COMMENT.exec(editor.document.lineAt(line).text);
    if (found) {
      const begin = new vscode.Position(line, found[0].length);
      editor.selection = new vscode.Selection(begin, editor.document.lineAt(line).range.end);
      editor.revealRange(editor.selection);
      return;
    }
  }
  if (!pin) {
    void vscode.window.showInformationMessage(`fx-lsp: there is nothing to pin at ${name} yet`);
  }
}
