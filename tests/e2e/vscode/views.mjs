// What there is beside graphs as text: passes in the diff editor, the picture, memory, the tree, commands, inputs.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { drive, plain } from './drive.mjs';

const { FX_FOLDER } = process.env;

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const code = w.editor('/attention.py');
  await w.lens('22 ops forward').waitFor();
  await w.traced();

  await page.locator('.activitybar .action-item', { has: page.locator('[aria-label^="FX"]') }).first().click();
  const rows = page.locator('.tree-explorer-viewlet-tree-view .monaco-list-row');
  await rows.filter({ hasText: 'SelfAttention' }).waitFor();
  await rows.filter({ hasText: 'SelfAttention' }).locator('.monaco-tl-twistie').click();
  await rows.filter({ hasText: 'saved for backward' }).waitFor();
  found.tree = (await rows.allTextContents()).map(plain);
  await w.shot('functions');
  await rows.filter({ hasText: 'merge_heads' }).click();
  await w.at(22);

  await w.click(code, 'F.softmax');
  found.commands = [];
  for (const title of ['FX: Doctor', 'FX: Clear Cache', 'FX: Restart Server', 'FX: Next Pass']) {
    found.commands.push(...(await w.commands(title))); // of all of ours, the list draws the first ones alone
  }
  await page.locator('.view-line', { hasText: 'F.softmax' }).click({ button: 'right' });
  const menu = page.locator('.monaco-menu .action-item', { hasText: /^FX/ });
  await menu.first().hover();
  await page.locator('.monaco-submenu .action-item', { hasText: 'Show Graph as Picture' }).waitFor();
  found.menu = (await page.locator('.monaco-submenu .action-label').allTextContents()).filter(Boolean);
  await w.shot('context-menu');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');

  await w.click(code, 'F.softmax');
  await w.command('FX: Compare Compiler Passes at Cursor…');
  await w.row('remove_noop_ops').first().waitFor();
  found.passes = (await page.locator('.quick-input-list .monaco-list-row .label-name').allTextContents()).map(plain);
  await w.shot('passes');
  await w.choose('joint:remove_noop_ops');
  const after = page.locator('.monaco-diff-editor .editor.modified');
  await w.until(async () => (await after.count()) > 0 && (await w.text(after)).includes('aten.'), 'the diff');
  found.diff = { tabs: await w.tabs(), before: await w.text(page.locator('.monaco-diff-editor .editor.original')), after: await w.text(after) };
  await page.waitForTimeout(800);
  await w.shot('diff');
  await w.command('FX: Next Pass');
  await w.until(async () => !(await w.tabs()).includes(found.diff.tabs.at(-1)), 'the next pass');
  found.next = await w.tabs();
  await w.command('FX: Previous Pass');
  await w.until(async () => (await w.tabs()).includes(found.diff.tabs.at(-1)), 'the pass before');
  await w.command('View: Close Editor');

  await w.click(code, 'F.softmax');
  await w.command('FX: Show Graph as Picture');
  const graph = w.webview();
  const selected = (name) => graph.locator(`body[data-selected="${name}"]`).waitFor();
  await graph.locator('body[data-state="ready"]').waitFor();
  found.picture = await graph.locator('body').evaluate((body) => ({ ...body.dataset, worker: '' }));
  await w.status().waitFor(); // beside a panel, too
  await w.shot('graph-view');
  await graph.locator('canvas[role="application"]:focus').waitFor(); // so that a keyboard is enough
  await page.keyboard.press('ArrowDown');
  await graph.locator('body:not([data-selected=""])').waitFor();
  const inner = await graph.locator('body').getAttribute('data-selected');
  await page.keyboard.press('Space');
  await graph.locator('body[data-selected^="attention.py:"]').waitFor();
  found.closed = await graph.locator('body').getAttribute('data-selected');
  await page.keyboard.press('Space');
  await selected(inner);
  await graph.locator('input[type="search"]').fill('softmax');
  await graph.locator('.hits', { hasText: 'found' }).waitFor();
  await graph.locator('input[type="search"]').press('Enter');
  await selected('_softmax');
  found.details = await graph.locator('aside').innerText();
  await w.shot('graph-view-selected');
  await w.click(code, 'def merge_heads(');
  const [x, y] = (await graph.locator('body').getAttribute('data-at')).split(',').map(Number);
  await graph.locator('canvas[role="application"]').click({ position: { x, y } });
  await w.at(13);
  await graph.locator('canvas[role="application"]').focus();
  await graph.locator('canvas[role="application"]').press('ArrowUp');
  await selected('masked_fill');
  const shown = await graph.locator('body').getAttribute('data-shown');
  await w.click(code, 'scores: ');
  await page.keyboard.press('End');
  await page.keyboard.type(' +* 2');
  await graph.locator('body[data-state="failed"]').waitFor();
  found.failed = await graph.locator('.message').innerText();
  const told = page.locator('.sidebar .message', { hasText: 'syntax error' });
  await told.waitFor();
  found.told = plain(await told.innerText());
  await w.shot('graph-view-failed');
  for (let i = 0; i < 5; i += 1) {
    await page.keyboard.press('Backspace');
  }
  await page.keyboard.press('Control+Shift+Enter'); // a line above, so that all below move
  await graph.locator(`body[data-state="ready"][data-shown="${shown}"]`).waitFor();
  await page.keyboard.press('Control+Shift+K');
  const backward = (await graph.locator('option').allTextContents()).find((text) => text.startsWith('backward'));
  await graph.locator('select').selectOption({ label: backward });
  await graph.locator('body[data-state="ready"][data-title$="backward"]').waitFor();
  await w.shot('graph-view-backward');
  await w.ask(graph.locator('button', { hasText: 'SVG' }));
  await page.keyboard.press('Enter');
  await w.until(() => existsSync(join(FX_FOLDER, 'attention.backward.svg')), 'the picture as a file');
  await w.close('backward');

  await w.click(code, 'F.softmax');
  await w.open('plain.py');
  await w.shows(w.editor('/plain.py'), 'return a + b');
  await w.until(async () => (found.elsewhere = await w.commands('FX: Show Forward')).every((title) => !title.startsWith('FX: ')), 'no command about functions');
  await w.command('View: Close Editor');

  await w.click(code, 'F.softmax');
  await w.command('FX: Show Activation Memory');
  const memory = w.webview();
  await memory.locator('body[data-state="ready"]').waitFor();
  found.memory = await memory.locator('body').innerText();
  await page.mouse.move(600, 700);
  await page.mouse.wheel(-2000, 0); // the code is scrolled to the end of a long line
  await w.traced();
  await w.shot('memory-view');
  await memory.locator('td button').first().click();
  await w.at(14);

  await w.click(code, 'F.softmax');
  await w.command('FX: Compare Partitioners');
  found.partitioners = await w.shows(w.editor('attention.table.py?partitions'), 'min-cut');
  await w.click(code, 'F.softmax');
  await w.command('FX: Generate Triton Kernel');
  const kernels = w.editor('attention.triton.py?triton');
  await w.shows(kernels, 'triton'); // it may have gone to the lines that belong to the cursor's already
  await w.click(code, 'F.softmax');
  await page.waitForTimeout(1500);
  found.kernels = await w.text(kernels);
  await w.shot('kernel');

  await w.command('FX: Open Walkthrough');
  await page.locator('.getting-started-step, .step-title').first().waitFor();
  await w.shot('walkthrough');
  await w.command('View: Close Editor');

  await w.click(code, 'F.softmax');
  await w.command('FX: Pin Inputs in a Comment');
  found.pinned = await w.shows(code, '# fx: q=');
  return found;
});
