// The frames of the README's moving picture: shapes in the code, a hover, the graph beside the code, a mistake.

import { drive, hover, place } from './drive.mjs';

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
