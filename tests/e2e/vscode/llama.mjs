// A file that others wrote: a graph of thousands of operations as text and as a picture, folded and whole.

import { drive } from './drive.mjs';

await drive(async (w) => {
  const found = { seconds: {} };
  const { page } = w;
  const timed = async (name, run) => {
    const begin = performance.now();
    await run();
    found.seconds[name] = (performance.now() - begin) / 1000;
  };
  const code = w.editor('/modeling_llama.py');
  await code.waitFor();
  await w.command('View: Toggle Primary Side Bar Visibility');
  await page.keyboard.press('Control+g');
  await page.keyboard.type(process.env.FX_LINE);
  await page.keyboard.press('Enter');
  found.lenses = await w.lenses('ops forward', code);

  await w.command('FX: Show Backward Graph at Cursor');
  const backward = w.editor('LlamaModel.backward.py');
  await timed('document', () => w.shows(backward, 'def backward('));
  found.backward = await w.text(backward);
  await w.shot('llama-document');
  await page.locator('.tab', { hasText: 'LlamaModel.backward' }).click({ button: 'middle' });

  await w.click(code, 'class LlamaModel');
  await w.command('FX: Show Graph as Picture');
  const graph = w.webview();
  await timed('picture', () => graph.locator('body[data-state="ready"]').waitFor());
  found.forward = await graph.locator('body').evaluate((body) => ({ ...body.dataset, worker: '' }));
  await w.shot('llama-graph-view');
  const stage = (await graph.locator('option').allTextContents()).find((text) => text.startsWith('backward'));
  await graph.locator('select').selectOption({ label: stage });
  await timed('backward', () => w.until(async () => Number(await graph.locator('body').getAttribute('data-nodes')) > 5000, 'the backward graph'));
  await timed('open all', async () => {
    await graph.locator('button', { hasText: 'Open all' }).click();
    await w.until(async () => Number(await graph.locator('body').getAttribute('data-shown')) > 5000, 'all of it');
  });
  found.shown = Number(await graph.locator('body').getAttribute('data-shown'));
  await w.shot('llama-graph-view-all');
  return found;
});
