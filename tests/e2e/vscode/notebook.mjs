// A notebook: what its cells show, a graph beside it, and the way back to a cell.

import { drive, plain } from './drive.mjs';

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const cells = page.locator('.notebook-editor .monaco-editor');
  const cell = (text) => cells.filter({ hasText: text }).first();
  await w.open('book.ipynb');
  const use = cell('use');
  found.use = await w.shows(use, 'y: f32[2, 3] = Net');
  found.lenses = await w.lenses('ops forward', cell('class'));
  await w.click(use, 'y');
  await w.command('FX: Show Graph at Cursor');
  const graph = w.editor('/use.forward.py');
  found.graph = await w.shows(graph, 'aten.relu');
  await w.click(graph, 'aten.relu');
  await page.keyboard.press('F12');
  await page.locator('.statusbar-item').filter({ hasText: 'Cell 3 of 4' }).waitFor();
  await w.shot('notebook');
  return found;
});
