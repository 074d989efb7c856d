// Which graphs to show in columns: of the same function, its variants and passes, and of the other functions.

import * as vscode from 'vscode';
import type { FunctionData, PassStep } from './data';
import type { Functions, Target } from './functions';
import { openComparison } from './panels';
import type { Session } from './session';
import { parseView, viewUri } from './views';

const ORDER = ['forward', 'inference', 'backward', 'joint'];

type Item = vscode.QuickPickItem & { uri?: vscode.Uri };

/** Lets the user choose graphs, and shows them beside each other. */
export async function compareGraphs(session: Session, functions: Functions, target: Target): Promise<void> {
  const view = parseView(target.uri);
  const [file, name] = [view?.file ?? target.uri, view?.name ?? target.name];
  const known = functions.known(name);
  const others = functions.all().map((other) => other.name).filter((other) => other !== name);
  const passes = await vscode.window.withProgress({ location: vscode.ProgressLocation.Window, title: 'fx-lsp: running the compiler’s passes' }, () =>
    session.execute<PassStep[] | null>('fxLsp.passes', file.toString(), name).catch(() => null),
  );
  const own = known?.stages.map((stage) => stage.name) ?? [];
  const changed = (passes ?? []).filter((step) => !step.unchanged && step.ops > 0 && !own.includes(step.stage));
  const items: Item[] = [
    { label: name, kind: vscode.QuickPickItemKind.Separator },
    ...(known ? graphs(file, known, '') : []),
    ...changed.map((step) => ({ label: step.stage, description: `${step.ops.toLocaleString('en')} ops · pass`, uri: vscode.Uri.parse(step.uri) })),
    ...others.flatMap((other) => {
      const data = functions.known(other);
      return data?.stages.length ? [{ label: other, kind: vscode.QuickPickItemKind.Separator }, ...graphs(file, data, `${other} · `)] : [];
    }),
  ];
  const placeHolder = 'Two graphs or more; the first one chosen in the list is what the others are compared with';
  const chosen = await vscode.window.showQuickPick(items, { title: `Compare graphs of ${name} with …`, placeHolder, canPickMany: true, ignoreFocusOut: true, matchOnDescription: true });
  const uris = chosen?.flatMap((item) => (item.uri ? [item.uri] : [])) ?? [];
  if (uris.length > 1) {
    openComparison(session, uris);
  } else if (chosen) {
    void vscode.window.showInformationMessage('fx-lsp: choose two graphs or more');
  }
}

/** The graphs of a function, and the default graph with each of its optional arguments. */
function graphs(file: vscode.Uri, data: FunctionData, before: string): Item[] {
  const place = ({ name }: { name: string }) => (ORDER.indexOf(name) + 1 || ORDER.length + 1);
  const stages = [...data.stages].sort((a, b) => place(a) - place(b));
  const first = stages[0]?.name ?? '';
  return [
    ...stages.map(({ name, ops }) => ({ label: `${before}${name}`, description: `${ops.toLocaleString('en')} ops`, uri: viewUri(file, data.name, name) })),
    ...data.variants.map(({ title, work }) => ({ label: `${before}${first} ${title}`, description: 'optional', uri: viewUri(file, data.name, first, work) })),
  ];
}
