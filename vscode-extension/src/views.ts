// The parts of a view's URI: `fx-lsp:/path/model.py/Block.forward.py?passes&from=decomposed`.

import * as vscode from 'vscode';
import { SCHEME } from './session';

export interface View {
  file: vscode.Uri;
  name: string;
  stage: string;
  work: string;
  before: string;
}

/** What a URI names, or undefined where it is no view's. */
export function parseView(uri: vscode.Uri): View | undefined {
  const cut = uri.path.lastIndexOf('/');
  const parts = uri.query.split('&').filter(Boolean);
  const before = parts.find((part) => part.startsWith('from='))?.slice('from='.length) ?? '';
  const title = /^(.*)\.([^.]+)$/.exec(uri.path.slice(cut + 1).replace(/(\.full)?\.(py|diff|txt)$/, ''));
  if (uri.scheme !== SCHEME || cut < 1 || title === null) {
    return undefined;
  }
  const file = vscode.Uri.file(uri.path.slice(0, cut));
  const work = parts.filter((part) => !part.startsWith('from=')).join('&');
  return { file, name: title[1] ?? '', stage: title[2] ?? '', work, before };
}

/** The URI of a stage of the target that a view is of. */
export function viewUri(file: vscode.Uri, name: string, stage: string, work = ''): vscode.Uri {
  const title = encodeURIComponent(`${name}.${stage}.${work === 'benchmark' ? 'txt' : 'py'}`);
  const query = work ? `?${encodeURIComponent(work)}` : '';
  return vscode.Uri.parse(`${SCHEME}:${vscode.Uri.file(file.fsPath).path.split('/').map(encodeURIComponent).join('/')}/${title}${query}`);
}

