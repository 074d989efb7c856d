// Bundles the extension for Node and its views for the webview; `--watch` keeps doing so.
import { cp, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { context } from 'esbuild';

const watch = process.argv.includes('--watch');
const common = { bundle: true, metafile: true, minify: !watch, sourcemap: watch ? 'inline' : false, legalComments: 'none', logLevel: 'warning' };
const node = { outdir: 'dist', platform: 'node', format: 'cjs', target: 'node20', supported: { 'dynamic-import': false } };
const contexts = await Promise.all([
  // The language client is a file of its own, so that what VS Code loads at its start is small.
  context({ ...common, ...node, entryPoints: ['src/main.ts'], external: ['vscode', './client'] }),
  context({ ...common, ...node, entryPoints: ['src/client.ts'], external: ['vscode'] }),
  context({
    ...common,
    entryPoints: ['graph', 'memory', 'benchmark', 'compare'].flatMap((view) => [`src/webview/${view}.ts`, `src/webview/${view}.css`]),
    outdir: 'dist/webview',
    platform: 'browser',
    format: 'iife',
    target: 'es2022',
  }),
]);
await mkdir('dist/webview', { recursive: true });
await cp('node_modules/elkjs/lib/elk-worker.min.js', 'dist/webview/elk-worker.js');
const results = await Promise.all(contexts.map((made) => (watch ? made.watch() : made.rebuild())));
if (!watch) {
  await Promise.all(contexts.map((made) => made.dispose()));
  await writeFile('dist/THIRD_PARTY.txt', await licenses(results.flatMap(({ metafile }) => Object.keys(metafile.inputs))));
}

/** The licenses of the packages that bundled files are from. */
async function licenses(files) {
  const found = files.map((file) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file)?.[1]);
  const texts = [...new Set(found)].filter(Boolean).sort().map(async (name) => {
    const folder = join('node_modules', name);
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    const { version, license } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    return `${name} ${version} (${license})\n\n${file ? await readFile(join(folder, file), 'utf8') : ''}`;
  });
  return (await Promise.all(texts)).join(`\n${'-'.repeat(80)}\n\n`);
}
