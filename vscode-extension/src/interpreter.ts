// Which Python traces a folder and why, and a list to pick another from.

import * as vscode from 'vscode';
import type { Interpreter } from './data';
import { SECTION, type Session } from './session';

const SETTING = 'interpreter';

/** Lets the user pick the interpreter of a folder, and writes it into the settings: of the workspace, if there is one. */
export async function pickInterpreter(session: Session, document: vscode.Uri | undefined): Promise<void> {
  const folders = vscode.workspace.workspaceFolders ?? [];
  const inside = document !== undefined && document.scheme === 'file';
  const offers = session.execute<Interpreter[]>('fxLsp.interpreters', ...(inside ? [document.toString()] : []));
  const settings = vscode.workspace.getConfiguration(SECTION);
  const isSet = settings.get<string>(SETTING, '').trim() !== '';
  const items = async () => [
    ...(await offers).map((offer) => ({ label: offer.path, description: offer.used ? 'used now' : '', detail: detailOf(offer), path: offer.path })),
    ...(isSet ? [{ label: '$(search) Find it', description: '', detail: 'removes the setting fx-lsp.interpreter', path: undefined }] : []),
  ];
  const chosen = await vscode.window.showQuickPick(items(), { title: 'Trace with which Python?', matchOnDetail: true });
  if (chosen !== undefined) {
    const target = folders.length > 0 ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
    await settings.update(SETTING, chosen.path, target);
  }
}

function detailOf({ reason, version, torch, problem }: Interpreter): string {
  const versions = version === null ? '' : `Python ${version}, ${torch === null ? 'no torch' : `torch ${torch}`}`;
  return [reason, problem ?? versions].filter(Boolean).join(' · ');
}
