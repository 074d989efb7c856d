// Settings that are on or off, and are changed by commands.

import * as vscode from 'vscode';
import { SECTION } from './session';

/** Turns a setting on or off, where the user or the workspace has set it. */
export async function setSwitch(setting: string, on: boolean): Promise<void> {
  const settings = vscode.workspace.getConfiguration(SECTION);
  const inspected = settings.inspect<boolean>(setting);
  const target = inspected?.workspaceValue === undefined ? vscode.ConfigurationTarget.Global : vscode.ConfigurationTarget.Workspace;
  await settings.update(setting, on, target);
}

export async function toggle(setting: string): Promise<void> {
  await setSwitch(setting, !vscode.workspace.getConfiguration(SECTION).get<boolean>(setting, true));
}
