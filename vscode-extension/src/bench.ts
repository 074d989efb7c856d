// Benchmarks: where and how to measure, and the user's hosts.

import * as vscode from 'vscode';
import type { Functions, Target } from './functions';
import { type HostsData, VARIANTS, WHATS } from './measured';
import { openPanel } from './panels';
import { SECTION, type Session } from './session';
import { setSwitch } from './switches';
import { runTask } from './tasks';
import { parseView } from './views';

const LAST = 'fx-lsp.lastHosts';
const CHOICES: [string, string][] = [
  ['fuse=no', 'a kernel for each operation'],
  ['matmul=always', 'kernels for all matrix products'],
  ['matmul=never', 'no kernels for matrix products'],
  ['backward=balance', 'backward recomputes what PyTorch recomputes'],
  ['backward=save', 'backward recomputes nothing'],
  ['precision=tf32', 'float32 matrix products in TF32'],
  ['precision=tf32x3', 'float32 matrix products as three TF32 products'],
  ['tma=no', 'matmuls load elements, not tiles with TMA'],
  ['deterministic=yes', 'scatter-adds stay PyTorch calls'],
  ['sizes=any', 'any batch and length, also if that costs launches'],
  ['sizes=traced', 'the sizes of the trace alone'],
];
const PROFILE = 'profile';
const EXAMPLE = `# The machines that benchmarks may run on. Only this file names them; no project can.

# [hosts.h200]
# ssh = "gpu-box"                  # what you would say to ssh
# python = "~/venv/bin/python"     # of that machine; without it python3

# [hosts.slurm]
# command = "srun --gres=gpu:1 python3"   # whatever ends in a Python
# connect = 600                    # seconds that it may be queued
# limit = 1200                     # seconds that a job may take

# [pools.lab]                      # the first of these that is free
# hosts = ["h200", "slurm"]
`;

/** What the server is asked for, as docs/reference/protocol.md says. */
export interface Options {
  hosts?: string[];
  what?: string[];
  variants?: string[];
  inputs?: string;
  sweep?: string;
  work?: string;
  profile?: boolean;
  byLine?: boolean;
}

/** Asks where, has a target measured there, and shows what comes of it. */
export async function bench(session: Session, target: Target, options: Options = {}): Promise<void> {
  const hosts = options.hosts ?? (await chooseHosts(session, `Benchmark ${nameOf(target)} on …`));
  if (hosts === undefined) {
    return;
  }
  const work = options.work ?? choicesOf(target.uri);
  const page = await session.execute<{ uri: string } | null>('fxLsp.bench', target.uri.toString(), target.name, { ...options, hosts, ...(work ? { work } : {}), show: false });
  if (page && options.byLine) {
    await setSwitch('lineCosts.enabled', true); // the column has the times as soon as they are there
  } else if (page) {
    openPanel(session, 'benchmark', vscode.Uri.parse(page.uri), '');
  }
}

/** The same, asking how to measure as well. */
export async function benchWithOptions(session: Session, functions: Functions, target: Target): Promise<void> {
  const title = (step: number) => `Benchmark ${nameOf(target)} (${step} of 6)`;
  const hosts = await chooseHosts(session, title(1), true);
  const what = hosts && (await chooseSome(WHATS.map(([what, name]) => ({ label: what, description: what === name ? '' : name, picked: what !== 'backward' })), title(2), 'What to measure'));
  const variants = what && (await chooseSome(VARIANTS.map((label) => ({ label, picked: true })), title(3), 'Variants to measure; all: everything that works, and hand-written rivals of the host'));
  if (!variants) {
    return;
  }
  const known = functions.known(parseView(target.uri)?.name ?? target.name)?.inputs.map(({ name, spec }) => `${name}=${spec}`).join(', ') ?? '';
  const inputs = await vscode.window.showInputBox({
    title: title(4),
    value: known,
    prompt: 'Inputs to measure with, written as in a # fx: comment; a size may be a name such as N for a sweep. Empty: the inputs of the trace',
    ignoreFocusOut: true,
    validateInput: wrongInputs,
  });
  if (inputs === undefined) {
    return;
  }
  const sweep = await vscode.window.showInputBox({
    title: title(5),
    prompt: 'Sizes to measure: N=1024..65536 for every power of two, or N=1,2,3. Empty: no sweep',
    ignoreFocusOut: true,
    validateInput: (text) => wrongSweep(text, inputs),
  });
  const own = choicesOf(target.uri)?.split('&') ?? [];
  const how = sweep === undefined ? undefined : await chooseHow(title(6), own);
  if (hosts === undefined || sweep === undefined || how === undefined) {
    return;
  }
  const choices = how.filter((choice) => choice !== PROFILE);
  await bench(session, target, {
    hosts,
    what,
    ...(variants.length < VARIANTS.length ? { variants } : {}),
    ...(inputs.trim() && inputs !== known ? { inputs } : {}),
    ...(sweep.trim() ? { sweep: sweep.replace(/\s/g, '') } : {}),
    work: ['triton', ...choices].join('&'),
    profile: how.includes(PROFILE),
  });
}

/** Stops what is measured of the target of a page, or of the one that the user chooses among those that are measured. */
export async function stopBench(session: Session, page: unknown): Promise<void> {
  const all = [...session.measuring.values()];
  const items = all.map(({ name, uri, running }) => ({ label: name, description: running.map(({ host }) => host).join(', '), uri }));
  const uri = typeof page === 'string' ? page : all.length > 1 ? (await vscode.window.showQuickPick(items, { title: 'Stop the benchmark of …' }))?.uri : all[0]?.uri;
  if (uri !== undefined) {
    await session.execute('fxLsp.stopBench', uri, '');
  }
}

/** Has the user choose the host that benchmarks run on, for all workspaces. */
export async function pickHost(session: Session): Promise<void> {
  const { hosts } = await knownHosts(session);
  const own = vscode.workspace.getConfiguration(SECTION).get<string>('host', '');
  const items = [
    ...hosts.map((host) => ({ label: host.name, description: `${host.reached}${host.name === own ? ' · chosen' : ''}`, name: host.name })),
    { label: 'Ask each time', description: own ? '' : 'chosen', name: '' },
  ];
  const chosen = await vscode.window.showQuickPick(items, { title: 'Where do benchmarks run?', placeHolder: 'FX: Edit GPU Hosts adds hosts' });
  if (chosen) {
    await vscode.workspace.getConfiguration(SECTION).update('host', chosen.name || undefined, vscode.ConfigurationTarget.Global);
  }
}

/** Opens the file that names the user's hosts; one that is not there yet is there once it is saved. */
export async function editHosts(session: Session): Promise<void> {
  const { path } = await session.execute<HostsData>('fxLsp.hosts');
  const file = vscode.Uri.file(path);
  const there = await vscode.workspace.fs.stat(file).then(() => true, () => false);
  const document = await vscode.workspace.openTextDocument(there ? file : file.with({ scheme: 'untitled' }));
  const editor = await vscode.window.showTextDocument(document);
  if (!there && document.getText() === '') {
    await editor.edit((edit) => edit.insert(new vscode.Position(0, 0), EXAMPLE));
  }
}

/** Runs the doctor on the hosts that the user chooses, in a terminal, where it can ask. */
export async function checkHosts(session: Session): Promise<void> {
  const { hosts } = await knownHosts(session);
  const chosen = hosts.length < 2 ? hosts.map((host) => host.name) : await chooseHosts(session, 'Check which hosts?', true);
  if (chosen) {
    await runTask(session, 'check hosts', ['doctor', ...chosen.flatMap((name) => ['--host', name])]);
  }
}

/** The choices of the kernels that a view shows, as a benchmark takes them. */
function choicesOf(uri: vscode.Uri): string | undefined {
  const [kind, ...parts] = parseView(uri)?.work.split('&') ?? [];
  const chosen = parts.filter((part) => CHOICES.some(([choice]) => choice.split('=')[0] === part.split('=')[0]));
  return kind === 'triton' || kind === 'lowered' ? ['triton', ...chosen].join('&') : undefined;
}

/** The names of the hosts that the user chooses, or undefined; this machine without a question where there is no other. */
async function chooseHosts(session: Session, title: string, always = false): Promise<string[] | undefined> {
  const { hosts, problems } = await knownHosts(session);
  if (hosts.length === 1 && problems.length === 0 && !always) {
    return hosts.map((host) => host.name);
  }
  const own = vscode.workspace.getConfiguration(SECTION).get<string>('host', '');
  const last = own ? [own] : session.context.globalState.get<string[]>(LAST, []);
  const picked = last.some((name) => hosts.some((host) => host.name === name)) ? last : ['local'];
  const items = hosts.map((host) => ({
    label: host.name,
    description: `${host.reached}${host.trusted ? '' : ' · never used: needs your confirmation'}`,
    picked: picked.includes(host.name),
  }));
  const chosen = await chooseSome(items, title, 'Several hosts run at the same time; FX: Edit GPU Hosts adds hosts');
  if (chosen) {
    await session.context.globalState.update(LAST, chosen);
  }
  return chosen;
}

async function knownHosts(session: Session): Promise<HostsData> {
  const found = await session.execute<HostsData>('fxLsp.hosts');
  if (found.problems.length) {
    const edit = 'Edit GPU Hosts';
    void vscode.window.showWarningMessage(`fx-lsp: ${found.problems.join('; ')}`, edit).then((chosen) => chosen && editHosts(session));
  }
  return found;
}

/** The labels that the user chooses, at least one; undefined where they leave. */
async function chooseSome(items: vscode.QuickPickItem[], title: string, placeHolder: string): Promise<string[] | undefined> {
  const chosen = await vscode.window.showQuickPick(items, { title, placeHolder, canPickMany: true, ignoreFocusOut: true, matchOnDescription: true });
  return chosen?.length ? chosen.map(({ label }) => label) : undefined;
}

/** How kernels are made: of each choice one value. */
async function chooseHow(title: string, own: string[]): Promise<string[] | undefined> {
  const rows: [string, string][] = [[PROFILE, 'also time each kernel separately'], ...CHOICES];
  const items = rows.map(([label, description]) => ({ label, description, picked: own.includes(label) }));
  const placeHolder = 'How to generate and measure kernels; none: the defaults';
  const chosen = await vscode.window.showQuickPick(items, { title, placeHolder, canPickMany: true, ignoreFocusOut: true, matchOnDescription: true });
  const labels = chosen?.map(({ label }) => label);
  const names = labels?.map((label) => label.split('=')[0]) ?? [];
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice === undefined) {
    return labels;
  }
  void vscode.window.showWarningMessage(`fx-lsp: choose one value of ${twice}`);
  return chooseHow(title, own);
}

function nameOf(target: Target): string {
  return parseView(target.uri)?.name ?? target.name;
}

/** What is wrong with inputs, as far as it can be seen here; the server reads them. */
export function wrongInputs(text: string): string | undefined {
  const open = [...text].reduce((depth, sign) => (depth < 0 ? depth : depth + Number('[('.includes(sign)) - Number('])'.includes(sign))), 0);
  return text.trim() === '' || (open === 0 && /^\s*[\w.]+\s*[=(]/.test(text)) ? undefined : 'Write them like x=bf16[8192, 4096], n=4';
}

/** What is wrong with a sweep over sizes of these inputs. */
export function wrongSweep(text: string, inputs: string): string | undefined {
  const found = /^\s*([A-Za-z_]\w*)\s*=\s*\d+\s*(?:\.\.\s*\d+|(?:,\s*\d+\s*)*)\s*$/.exec(text);
  if (text.trim() === '') {
    return undefined;
  }
  if (found === null) {
    return 'Write it as N=1024..65536 or N=1,2,3';
  }
  const name = found[1] ?? '';
  return new RegExp(`[[(,]\\s*${name}\\s*[\\]),]`).test(inputs) ? undefined : `No size of the inputs is called ${name}: go back and write one as x=f32[${name}, 64]`;
}
