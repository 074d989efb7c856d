// Inside views: lenses to what else there is of a target.

import * as vscode from 'vscode';
import { parseView } from './views';

const GRAPHS = ['forward', 'backward', 'joint', 'inference'];

export class ViewLenses implements vscode.CodeLensProvider {
  provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
    const view = parseView(document.uri);
    if (view === undefined || document.lineCount < 2) {
      return [];
    }
    const uri = document.uri.toString();
    const lens = (line: number, title: string, command: string, ...words: string[]) =>
      new vscode.CodeLens(new vscode.Range(line, 0, line, 0), { title, command, arguments: words });
    const top: vscode.CodeLens[] = [];
    if (GRAPHS.includes(view.stage) || view.stage.includes(':')) {
      top.push(lens(0, 'picture', 'fx-lsp.showPicture', uri));
    }
    if (!view.work && GRAPHS.includes(view.stage)) {
      const others = view.stage === 'inference' ? [] : GRAPHS.slice(0, 3).filter((stage) => stage !== view.stage);
      others.forEach((stage) => top.push(lens(0, stage, 'fx-lsp.openStage', uri, stage)));
      top.push(lens(0, 'memory', 'fx-lsp.showMemory', uri));
    }
    if (view.work.split('&')[0] === 'passes' || !view.work) {
      top.push(lens(0, 'compare passes', 'fx-lsp.comparePasses', uri));
    }
    return [...top, ...this.hidden(document, uri, lens)];
  }

  /** Over what is folded away in a graph, the way to all of it. */
  private *hidden(
    document: vscode.TextDocument,
    uri: string,
    lens: (line: number, title: string, command: string, ...words: string[]) => vscode.CodeLens,
  ): Iterable<vscode.CodeLens> {
    const whole = uri.replace(/\.py(\?|$)/, '.full.py$1');
    for (let line = 0; line < document.lineCount; line += 1) {
      if (/^# note: [\d,]+ of [\d,]+ nodes repeat others/.test(document.lineAt(line).text)) {
        yield lens(line, 'show every operation', 'fx-lsp.openPass', whole);
      }
    }
  }
}
