// A small file from its lenses to its graphs: what most people do first.

import { drive } from './drive.mjs';

const MARKED = 'rgba(230, 180, 80';

await drive(async (w) => {
  const found = {};
  const code = w.editor('/attention.py');
  found.lenses = await w.lenses('22 ops forward');
  await w.traced();
  found.code = await w.text(code);
  await w.shot('code');

  await w.page.locator('.view-line span', { hasText: /^attention$/ }).first().hover();
  const hover = w.page.locator('.monaco-hover:visible').filter({ hasText: 'pin inputs' });
  await hover.waitFor();
  found.hover = await hover.innerText();
  await w.shot('hover');
  await hover.locator('a', { hasText: 'show forward graph' }).click();

  const forward = w.editor('attention.forward.py');
  found.forward = await w.shows(forward, 'aten._softmax');
  found.inGraph = await w.lenses('joint', forward);
  await w.page.mouse.move(5, 400);
  await w.click(code, 'F.softmax');
  await w.until(async () => (await w.marked(forward, MARKED)).some((line) => line.includes('_softmax')), 'marked lines');
  found.marked = await w.marked(forward, MARKED);
  found.marks = await w.marks(code, MARKED);
  found.colors = await w.page.locator('.view-overlays .cdr[class*="ced-"]').count();
  await w.shot('graph-document');

  await w.click(forward, 'bmm_1: ');
  await w.until(async () => (await w.marked(code, MARKED)).some((line) => line.includes('return weights @ v')), 'the line of the code');
  found.back = await w.marked(code, MARKED);

  await w.click(code, 'F.softmax');
  await w.until(async () => (await w.marked(code, MARKED)).some((line) => line.includes('F.softmax')), 'the mark of the line at the cursor');
  await w.command('FX: Show Graph as Picture');
  await w.until(async () => (await w.marked(code, MARKED)).length === 0, 'no mark, as no graph is to be seen');
  await w.webview().locator('body[data-state="ready"]').waitFor();
  await w.command('View: Close Editor');

  await w.click(forward, '# attention.py:13');
  await w.command('Fold');
  await w.until(async () => !(await w.text(forward)).includes('bitwise_not'), 'a fold');
  found.folded = await w.text(forward);
  await w.command('Unfold All');

  await w.lens('backward', forward).click();
  found.backward = await w.shows(w.editor('attention.backward.py'), 'grad_v');
  found.tabs = await w.tabs();

  await w.click(code, 'torch.ones');
  await w.page.keyboard.press('End');
  await w.page.keyboard.press('Enter');
  await w.page.keyboard.type('scores = scores.tanh()');
  found.edited = await w.shows(w.editor('attention.backward.py'), 'tanh_backward');
  await w.page.keyboard.press('Control+z');
  await w.page.keyboard.press('Control+z');
  await w.page.keyboard.press('Control+z');
  await w.until(async () => !(await w.text(w.editor('attention.backward.py'))).includes('tanh_backward'), 'the graph without tanh');

  await w.reload('attention.backward.py');
  found.restored = await w.shows(w.editor('attention.backward.py'), 'grad_v');
  return found;
});
