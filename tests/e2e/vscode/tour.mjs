// The frames of the README's moving picture: shapes in the code, a hover, the graph beside the code, a mistake.

import { drive } from './drive.mjs';

await drive(async (w) => {
  const { page } = w;
  const code = w.editor('/attention.py');
  const frames = [];
  const shot = async (name) => {
    frames.push(`tour-${name}`);
    await w.shot(`tour-${name}`);
  };
  await w.lenses('ops forward');
  await w.traced();
  await w.command('View: Toggle Primary Side Bar Visibility');
  await page.setViewportSize({ width: 1360, height: 640 });
  await rest(page);
  await shot('shapes');

  await hover(w, code, 'F.softmax', 'softmax', '_softmax_backward_data');
  await shot('hover');

  await rest(page);
  await w.lens('graphs', code).click();
  await w.row('show forward graph').waitFor();
  await shot('menu');
  await w.row('show forward graph').click();
  const graph = w.editor('SelfAttention.forward.py');
  await w.shows(graph, 'aten.addmm');
  await page.mouse.move(1000, 400);
  await w.until(async () => {
    await page.mouse.wheel(0, 200);
    return (await w.text(graph)).includes('transpose_1: ');
  }, 'the softmax in the middle of the graph');
  await w.click(code, 'F.softmax');
  await rest(page);
  await shot('graph');

  await w.close('SelfAttention.forward');
  const { right, middle } = await place(code, 'self.out = nn', 'Linear(');
  await page.mouse.click(right, middle);
  await page.keyboard.type('2 * ');
  await code.locator('.squiggly-error').first().waitFor();
  await w.traced();
  const message = await hover(w, code, 'return self.out', 'reshape', 'cannot be multiplied');
  await shot('mistake');
  return { frames, message: await message.innerText() };
});

/** Moves the mouse below the code, and waits until no hover is left. */
async function rest(page) {
  await page.mouse.move(660, 590);
  await page.locator('.monaco-hover:visible').first().waitFor({ state: 'hidden' });
}

/** Moves the mouse to a word in the line of an editor until a hover with a text shows; it hides when the editor changes. */
async function hover(w, editor, line, word, text) {
  const { page } = w;
  const shown = page.locator('.monaco-hover:visible').filter({ hasText: text });
  await w.until(async () => {
    const { left, right, middle } = await place(editor, line, word);
    await page.mouse.move(left - 40, middle + 60);
    await page.mouse.move((left + right) / 2, middle, { steps: 5 });
    return shown.first().waitFor({ timeout: 5000 }).then(() => true, () => false);
  }, `a hover with ${text}`);
  return shown.first();
}

/** Returns where the first of such texts is on the screen. */
async function place(editor, line, text) {
  const row = editor.locator('.view-line').filter({ hasText: new RegExp(line.replaceAll(' ', '[ \\u00a0]')) }).first();
  return row.evaluate((root, wanted) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) {
      nodes.push(walker.currentNode);
    }
    const begin = nodes.map((node) => node.textContent).join('').indexOf(wanted);
    const at = (offset) => {
      let rest = offset;
      const node = nodes.find(({ length }) => rest <= length || ((rest -= length), false));
      return [node, rest];
    };
    const range = document.createRange();
    range.setStart(...at(begin));
    range.setEnd(...at(begin + wanted.length));
    const { left, right, top, bottom } = range.getBoundingClientRect();
    return { left, right, middle: (top + bottom) / 2 };
  }, text);
}
