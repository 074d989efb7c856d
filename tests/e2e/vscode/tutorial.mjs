// The tutorial from page to page, in one session: what each page says of an editor is done, and what it shows is read.

import { drive, hover, place } from './drive.mjs';

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const model = w.editor('/model.py');
  const pick = async (choice) => {
    await w.lens('graphs', model).click();
    await w.choose(choice);
  };

  // 1. A model, 2. Its graph
  await w.lens('20 ops forward', model).waitFor();
  await w.traced();
  await w.command('View: Toggle Primary Side Bar Visibility');
  found.lenses = await w.lenses('6 ops forward', model);
  found.code = await w.text(model);
  await w.shot('tutorial-model');
  await pick('show forward graph');
  found.forward = await w.shows(w.editor('rms_norm.forward.py'), 'return (mul_1');
  await pick('show backward graph');
  found.backward = await w.shows(w.editor('rms_norm.backward.py'), 'return (grad_x');
  found.hover = await (await hover(w, model, 'torch.rsqrt', 'rsqrt', 'aten.rsqrt')).innerText();
  await w.close('rms_norm.forward');
  await w.close('rms_norm.backward');

  // 3. A mistake
  await w.open('mistake.py');
  const mistake = w.editor('/mistake.py');
  const underlined = mistake.locator('.squiggly-error').first();
  await underlined.waitFor();
  found.mistake = await (await hover(w, mistake, 'return self.head', 'mean', 'cannot be multiplied')).innerText();
  await page.keyboard.press('Escape');
  await w.traced();
  await w.lens('show partial graph', mistake).waitFor();
  found.partial = await w.text(mistake);
  await w.shot('tutorial-mistake');
  const { right, middle } = await place(mistake, 'self.head = nn', 'Linear(');
  await page.mouse.click(right, middle);
  for (let i = 0; i < '2 * '.length; i += 1) {
    await page.keyboard.press('Delete');
  }
  await underlined.waitFor({ state: 'detached' });
  await page.keyboard.type('2 * ');
  await underlined.waitFor();

  // 4. Its memory
  await w.open('model.py');
  await w.click(model, 'self.block(x)');
  await w.command('FX: Show Activation Memory');
  await w.webview().locator('body[data-state="ready"]').waitFor();
  found.memory = await w.webview().locator('body').innerText();
  await w.shot('tutorial-memory');
  await w.close('memory');
  await w.click(model, 'self.block(x)');
  await page.keyboard.press('Home');
  await page.keyboard.press('Shift+End');
  await page.keyboard.press('Control+.');
  const actions = page.locator('.action-widget .monaco-list-row');
  await actions.filter({ hasText: 'call it through torch.utils.checkpoint' }).waitFor();
  found.actions = await actions.allInnerTexts();
  await actions.filter({ hasText: 'call it through torch.utils.checkpoint' }).click();
  await w.lens('saves 66 KiB', model).waitFor();
  found.saved = await w.lenses('saves 66 KiB', model);
  found.checkpointed = await w.text(model);
  await page.keyboard.press('Control+z');
  await w.lens('saves 643 KiB', model).waitFor();

  // 5. A kernel
  await w.click(model, 'return x * scale * weight');
  await pick('generate Triton kernel');
  found.kernel = await w.shows(w.editor('rms_norm.triton.py?triton'), 'tl.rsqrt');
  await w.shot('tutorial-kernel');
  return found;
});
