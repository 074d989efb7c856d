// The commands of the palette, the menus and the lenses.

import * as vscode from 'vscode';
import { bench, benchWithOptions, checkHosts, editHosts, type Options, pickHost, stopBench } from './bench';
import { compareGraphs } from './compare';
import type { Documents } from './documents';
import { openPlace, openView } from './documents';
import type { Functions, Item, Target } from './functions';
import { pickInterpreter } from './interpreter';
import { openPanel } from './panels';
import { Passes } from './passes';
import { pinInputs } from './pin';
import { copyReport } from './report';
import { SCHEME, SECTION, type Session } from './session';
import { showMenu } from './status';
import { toggle } from './switches';
import { runTask, wordsOf } from './tasks';
import { parseView } from './views';

const CHIPS = ['cuda:80', 'cuda:86', 'cuda:89', 'cuda:90', 'cuda:100', 'cuda:120', 'hip:gfx90a', 'hip:gfx942'];
const FORMS: [string, string][] = [
  ['resources', 'registers, spills, shared memory, occupancy'],
  ['ttir', 'Triton IR'],
  ['ttgir', 'Triton GPU IR'],
  ['llir', 'LLVM IR'],
  ['ptx', 'PTX, for NVIDIA chips'],
  ['sass', 'machine code, for NVIDIA chips'],
  ['amdgcn', 'machine code, for AMD chips'],
];
const PAGES: [string, string][] = [
  ['aliasing', 'mutations, aliases, duplicate inputs'],
  ['crossref', 'whether fake and real tensors agree on every node'],
  ['unfunctionalized', 'the graph before functionalization'],
  ['core', 'in core ATen operations'],
];

/** What a command was called on: a lens or a link names it, the tree gives its item, the palette nothing. */
type Words = [(string | Item | vscode.Uri)?, string?, (string | Options)?];

export function registerCommands(context: vscode.ExtensionContext, session: Session, functions: Functions, documents: Documents): void {
  const passes = new Passes(session);
  context.subscriptions.push(passes);

  const register = (name: string, run: (...words: Words) => unknown) => {
    const guarded = async (...words: Words) => {
      try {
        return await run(...words);
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        session.log(`${name}: ${message}`);
        void vscode.window.showErrorMessage(`fx-lsp: ${message}`);
        return undefined;
      }
    };
    context.subscriptions.push(vscode.commands.registerCommand(name, guarded));
  };
  const on = (name: string, run: (target: Target, words: Words) => unknown) =>
    register(name, async (...words) => {
      const target = await targetOf(functions, words);
      return target && run(target, words);
    });
  const stage = (name: string, shown: string, work = '') =>
    on(name, ({ uri, name: target }) => session.execute('fxLsp.showStage', uri.toString(), target, shown, work));

  stage('fx-lsp.showGraph', '');
  stage('fx-lsp.showForward', 'forward');
  stage('fx-lsp.showBackward', 'backward');
  stage('fx-lsp.showJoint', 'joint');
  stage('fx-lsp.showSummary', 'summary');
  stage('fx-lsp.showBreaks', 'breaks', 'breaks');
  stage('fx-lsp.showRecompiles', 'recompiles', 'recompiles');
  stage('fx-lsp.showPasses', 'passes', 'passes');
  stage('fx-lsp.comparePartitioners', 'table', 'partitions');
  stage('fx-lsp.showTorchScript', 'torchscript', 'torchscript');
  stage('fx-lsp.showFusion', 'fusion', 'fusion');
  stage('fx-lsp.showInductorFusion', 'fusion:inductor', 'fusion');
  stage('fx-lsp.generateKernel', 'triton', 'triton');
  on('fx-lsp.saveKernel', ({ uri, name }) => session.execute('fxLsp.writeKernel', uri.toString(), name));
  register('fx-lsp.openStage', (uri, name, shown) => {
    const view = parseView(vscode.Uri.parse(String(uri)));
    return view ? session.execute('fxLsp.showStage', String(uri), '', String(name)) : session.execute('fxLsp.showStage', String(uri), String(name), String(shown));
  });
  on('fx-lsp.compareGraphs', (target) => compareGraphs(session, functions, target));
  on('fx-lsp.comparePasses', ({ uri, name }) => passes.choose(uri, name));
  on('fx-lsp.checkPasses', ({ uri, name }) => passes.choose(uri, name, 'passes&check'));
  register('fx-lsp.nextPass', () => passes.go(1));
  register('fx-lsp.previousPass', () => passes.go(-1));
  register('fx-lsp.openPass', (uri) => openView(vscode.Uri.parse(String(uri))));
  on('fx-lsp.showDebug', async ({ uri, name }) => {
    const page = await choose(PAGES, `Mutations and aliases of ${name}`);
    return page && session.execute('fxLsp.showStage', uri.toString(), name, page, 'debug');
  });
  on('fx-lsp.showCompiledKernel', async ({ uri, name }) => {
    const own = vscode.workspace.getConfiguration(SECTION).get<string>('gpu', '');
    const chips = [own, ...CHIPS.filter((chip) => chip !== own)].filter(Boolean);
    const chip = await vscode.window.showQuickPick(chips, { title: 'Compile for which chip?' });
    const form = chip && (await choose(FORMS, `Compiled kernels of ${name} for ${chip}`));
    return form && session.execute('fxLsp.showStage', uri.toString(), name, form, `lowered&target=${chip}`);
  });
  on('fx-lsp.runPass', ({ uri, name }) => session.execute('fxLsp.runPass', uri.toString(), name));
  on('fx-lsp.showPicture', ({ uri, name }, words) => openPanel(session, 'graph', uri, name, shownView(words)));
  on('fx-lsp.showMemory', ({ uri, name }) => openPanel(session, 'memory', uri, name));
  on('fx-lsp.pinInputs', ({ uri, name }) => pinInputs(functions, uri, name));
  // Links of hovers, which the server names:
  on('fxLsp.pinInputs', ({ uri, name }) => pinInputs(functions, uri, name));
  on('fxLsp.showMemory', ({ uri, name }) => openPanel(session, 'memory', uri, name));
  register('fx-lsp.openFunction', (uri, range) => open(vscode.Uri.parse(String(uri)), range as unknown as vscode.Range));

  on('fx-lsp.bench', (target, [, , options]) => bench(session, target, typeof options === 'object' ? options : {}));
  on('fx-lsp.benchWithOptions', (target) => benchWithOptions(session, functions, target));
  on('fx-lsp.benchByLine', (target) => bench(session, target, { byLine: true }));
  on('fx-lsp.showBenchmark', ({ uri, name }) => openPanel(session, 'benchmark', uri, name));
  register('fx-lsp.stopBench', (page) => stopBench(session, page));
  register('fx-lsp.pickHost', () => pickHost(session));
  register('fx-lsp.editHosts', () => editHosts(session));
  register('fx-lsp.checkHosts', () => checkHosts(session));

  // What runs in a terminal of its own.
  register('fx-lsp.recordInputs', async () => {
    const command = await vscode.window.showInputBox({ title: 'Record inputs', prompt: 'The program whose calls to record: shapes, dtypes and plain values, no data', value: 'python train.py' });
    return command && runTask(session, 'record', ['record', '--', ...wordsOf(command)]);
  });
  register('fx-lsp.checkFile', () => {
    const file = vscode.window.activeTextEditor?.document.uri.fsPath;
    return file && runTask(session, 'check', ['check', file]);
  });
  register('fx-lsp.checkWorkspace', async () => {
    const folders = vscode.workspace.workspaceFolders ?? [];
    const folder = folders.length > 1 ? await vscode.window.showWorkspaceFolderPick() : folders[0];
    return folder && runTask(session, 'check', ['check', folder.uri.fsPath], folder);
  });
  register('fx-lsp.pickInterpreter', () => pickInterpreter(session, vscode.window.activeTextEditor?.document.uri));
  register('fx-lsp.doctor', () => runTask(session, 'doctor', ['doctor']));
  register('fx-lsp.copyReport', () => copyReport(session));

  register('fx-lsp.toggleShapes', () => toggle('inlayHints.enabled'));
  register('fx-lsp.toggleColors', () => toggle('linkedLines.colors'));
  register('fx-lsp.toggleLineCosts', () => toggle('lineCosts.enabled'));
  register('fx-lsp.restartServer', async () => {
    await session.restart();
    vscode.window.visibleTextEditors.filter((editor) => editor.document.uri.scheme === SCHEME).forEach((editor) => documents.refresh(editor.document.uri));
  });
  register('fx-lsp.clearCache', () => session.execute('fxLsp.clearCache'));
  register('fx-lsp.stopTracing', () => session.stopTracing());
  register('fx-lsp.showLog', () => session.output.show());
  register('fx-lsp.menu', () => showMenu(session));
  register('fx-lsp.walkthrough', () => vscode.commands.executeCommand('workbench.action.openWalkthrough', 'fx-lsp.fx-lsp#start'));
}

/** What a command is about: what it was called on, what is at the cursor, or what the user chooses. */
async function targetOf(functions: Functions, [first, name]: Words): Promise<Target | undefined> {
  if (typeof first === 'string') {
    const uri = vscode.Uri.parse(first);
    return { uri, name: typeof name === 'string' && !parseView(uri) ? name : '', kind: '' };
  }
  if (typeof first === 'object' && 'kind' in first && first.kind !== 'detail') {
    return { uri: first.uri, name: first.data.name, kind: first.data.kind };
  }
  const active = activeView();
  if (active !== undefined) {
    return { uri: active, name: '', kind: '' };
  }
  const found = functions.atCursor();
  if (found !== undefined) {
    return found;
  }
  const all = functions.all();
  if (all.length === 0) {
    void vscode.window.showInformationMessage(`fx-lsp: ${functions.failure || 'this file has no function or module that uses tensors'}`);
    return undefined;
  }
  const chosen = await vscode.window.showQuickPick(
    all.map((target) => ({ label: target.name, description: target.kind, target })),
    { title: 'Which function or module?' },
  );
  return chosen?.target;
}

function activeView(): vscode.Uri | undefined {
  const uri = vscode.window.activeTextEditor?.document.uri;
  return uri && parseView(uri) ? uri : undefined;
}

/** The view that the picture of a graph is to show, where the command was called in one. */
function shownView([first]: Words): vscode.Uri | undefined {
  const uri = typeof first === 'string' ? vscode.Uri.parse(first) : first === undefined ? activeView() : undefined;
  return uri && parseView(uri) ? uri : undefined;
}

async function choose(rows: [string, string][], title: string): Promise<string | undefined> {
  const items = rows.map(([label, description]) => ({ label, description }));
  return (await vscode.window.showQuickPick(items, { title, matchOnDescription: true }))?.label;
}

async function open(uri: vscode.Uri, range: vscode.Range): Promise<void> {
  const { start } = range;
  const place = new vscode.Range(start.line, start.character, start.line, start.character);
  await openPlace(uri, place);
}
