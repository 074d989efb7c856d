// Inside views: lenses to what else there is of a target, and a fold for each source line.

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

export class ViewFolding implements vscode.FoldingRangeProvider {
  provideFoldingRanges(document: vscode.TextDocument): vscode.FoldingRange[] {
    const lines = Array.from({ length: document.lineCount }, (_, i) => document.lineAt(i).text);
    return foldingRanges(lines).map(
      ({ start, end, kind }) =>
        new vscode.FoldingRange(start, end, kind === 'comment' ? vscode.FoldingRangeKind.Comment : undefined),
    );
  }
}

/** The heads of comments, the parameters, each `def`, and the statements of one source line. */
export function foldingRanges(lines: string[]): { start: number; end: number; kind: 'comment' | 'code' }[] {
  const found: { start: number; end: number; kind: 'comment' | 'code' }[] = [];
  const add = (start: number, end: number, kind: 'comment' | 'code') => {
    if (end > start) {
      found.push({ start, end, kind });
    }
  };
  const last = lines.findLastIndex((line) => line.trim() !== '');
  for (let i = 0; i < lines.length; i += 1) {
    const line = lines[i] ?? '';
    if (line.startsWith('#') && !(lines[i - 1] ?? '').startsWith('#')) {
      add(i, until(lines, i, (text) => !text.startsWith('#')), 'comment');
    } else if (/^(def|class|@)/.test(line) && !(lines[i - 1] ?? '').startsWith('@')) {
      const end = until(lines, i, (text, at) => at > i + 1 && /^(def|class|@|#|[A-Za-z])/.test(text));
      add(i, Math.min(end, last), 'code');
    } else if (/^ {4}# \S+:\d+/.test(line)) {
      add(i, until(lines, i, (text) => text.trim() === '' || /^\S/.test(text)), 'code');
    }
  }
  return found;
}

/** The last line with text before the first one after `start` that `stops`. */
function until(lines: string[], start: number, stops: (text: string, at: number) => boolean): number {
  let end = start;
  for (let i = start + 1; i < lines.length && !stops(lines[i] ?? '', i); i += 1) {
    end = (lines[i] ?? '').trim() === '' ? end : i;
  }
  return end;
}
