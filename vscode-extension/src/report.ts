// What a bug report needs of this machine: versions, settings, the end of the log. No source code, no names of hosts.

import { homedir, hostname } from 'node:os';
import * as vscode from 'vscode';
import type { HostsData } from './measured';
import { SECTION, type Session } from './session';
import { outputOf } from './tasks';

const LINES = 40;
/** Written instead of the name of a host. */
const HOST = 'HOST';
const HERE = 'this machine';

interface Check {
  about: string;
  state: string;
  text: string;
}

/** Copies the report, and offers to open the page for issues. Returns the report. */
export async function copyReport(session: Session): Promise<string> {
  const options = { location: vscode.ProgressLocation.Notification, title: 'fx-lsp: collecting versions …', cancellable: true };
  const text = await vscode.window.withProgress(options, (_, token) => report(session, token));
  await vscode.env.clipboard.writeText(text);
  void offerIssues(session);
  return text;
}

async function offerIssues(session: Session): Promise<void> {
  const open = 'Open Issues';
  const message = 'The report is on the clipboard: versions, changed settings and the last lines of the log. Read it before you send it.';
  if ((await vscode.window.showInformationMessage(message, open)) === open) {
    await vscode.env.openExternal(vscode.Uri.parse(manifest(session).bugs.url));
  }
}

async function report(session: Session, token: vscode.CancellationToken): Promise<string> {
  const { version } = manifest(session);
  const { health, message } = session.status;
  const web = vscode.env.uiKind === vscode.UIKind.Web; // in a browser, the name of the remote may be that of a host
  const place = web ? 'in a browser' : vscode.env.remoteName === undefined ? 'on the desktop' : `with ${vscode.env.remoteName}`;
  const sections: [string, string[]][] = [
    [
      'Versions',
      [
        `fx-lsp ${version}`,
        `${vscode.env.appName} ${vscode.version} ${place}`,
        `${process.platform} ${process.arch}, node ${process.versions.node}`,
      ],
    ],
    ['Doctor', await doctor(session, token)],
    ['Status', [`server: ${session.ready ? 'running' : 'not running'}, ${health}${health === 'ok' ? '' : `, ${message}`}`, ...problems()]],
    ['Settings that differ from the default', settings(session)],
  ];
  const lists = sections.map(([title, rows]) => `### ${title}\n\n${(rows.length ? rows : ['none']).map((row) => `- ${row}`).join('\n')}\n`);
  const log = session.output.last(LINES).filter((line) => !isCode(line));
  const text = [...lists, `### Log\n\n\`\`\`\n${log.join('\n')}\n\`\`\`\n`].join('\n');
  return withoutNames(text, await hostNames(session));
}

/** What the doctor finds on this machine. It starts the interpreter of the workspace, and so needs its trust. */
async function doctor(session: Session, token: vscode.CancellationToken): Promise<string[]> {
  if (!vscode.workspace.isTrusted || !session.ready) {
    return [`server's Python: ${session.python || 'none'}`, vscode.workspace.isTrusted ? 'the server does not run' : 'the workspace is not trusted'];
  }
  const printed = await outputOf(session, ['doctor', '--no-hosts', '--json'], token);
  try {
    return (JSON.parse(printed) as Check[]).map(({ about, state, text }) => `${state === 'wrong' ? '**wrong** ' : ''}${about}: ${text}`);
  } catch {
    return [`server's Python: ${session.python}`, 'the doctor did not answer'];
  }
}

/** The codes of the problems that are shown, with how many there are of each; their messages may quote code. */
function problems(): string[] {
  const counts = new Map<string, number>();
  for (const problem of vscode.languages.getDiagnostics().flatMap(([, all]) => all)) {
    if (problem.source === SECTION) {
      const code = String(typeof problem.code === 'object' ? problem.code.value : problem.code);
      counts.set(code, (counts.get(code) ?? 0) + 1);
    }
  }
  return counts.size ? [`problems: ${[...counts].map(([code, count]) => `${code} ${count}`).join(', ')}`] : [];
}

function settings(session: Session): string[] {
  const ours = vscode.workspace.getConfiguration(SECTION);
  return Object.entries(manifest(session).contributes.configuration.properties).flatMap(([name, { default: usual }]) => {
    const key = name.slice(SECTION.length + 1);
    const value = JSON.stringify(ours.get(key));
    return value === JSON.stringify(usual) ? [] : [`${name}: ${name === `${SECTION}.host` ? HOST : value}`];
  });
}

/** Whether a line is one of a traceback that quotes code: they alone are indented so far. */
function isCode(line: string): boolean {
  return line.startsWith('    ');
}

/** The names and addresses of the user's hosts, and of this machine. */
async function hostNames(session: Session): Promise<string[]> {
  const { hosts } = session.ready ? await session.execute<HostsData>('fxLsp.hosts') : { hosts: [] };
  const others = hosts.filter(({ reached }) => reached !== HERE);
  const addresses = others.map(({ reached }) => reached.slice(reached.lastIndexOf(' ') + 1)); // of `ssh user@box`
  const boxes = addresses.map((address) => address.slice(address.lastIndexOf('@') + 1));
  const names = [hostname(), ...others.flatMap(({ name, reached }) => [name, reached]), ...addresses, ...boxes];
  return names.filter(Boolean).sort((a, b) => b.length - a.length);
}

function withoutNames(text: string, names: string[]): string {
  const home = homedir();
  const homes = [home, JSON.stringify(home).slice(1, -1), vscode.Uri.file(home).path, vscode.Uri.file(home).toString().slice('file://'.length)];
  const flags = process.platform === 'win32' ? 'gi' : 'g';
  const short = homes.reduce((rest, path) => rest.replace(new RegExp(`${escaped(path)}(?![\\w.-])`, flags), '~'), text);
  return names.reduce((rest, name) => rest.replace(new RegExp(`(?<![\\w-])${escaped(name)}(?![\\w-])`, 'g'), HOST), short);
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

function manifest(session: Session): {
  version: string;
  bugs: { url: string };
  contributes: { configuration: { properties: Record<string, { default?: unknown }> } };
} {
  return session.context.extension.packageJSON;
}
