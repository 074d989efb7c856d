// Types in VS Code; how long each key takes to be drawn, and how long the extension took to start.

import { drive } from '../tests/e2e/vscode/drive.mjs';

const KEYS = 200;
const TEXT = 'scores = scores + 1.0  # typed ';

await drive(async (w) => {
  const { page } = w;
  const code = w.editor('/attention.py');
  await code.waitFor();
  const traces = process.env.FX_TRACES === 'yes';
  if (traces) {
    await w.lens('ops forward').waitFor();
    await w.traced();
  } else {
    await page.waitForTimeout(5000);
  }
  await w.click(code, 'torch.ones');
  await page.keyboard.press('End');
  await page.keyboard.press('Enter');
  await code.evaluate((root) => {
    window.fxTimes = [];
    let began = 0;
    window.addEventListener('keydown', () => (began = performance.now()), true);
    new MutationObserver(() => {
      const begin = began;
      began = 0;
      if (begin) {
        requestAnimationFrame(() => setTimeout(() => window.fxTimes.push(performance.now() - begin)));
      }
    }).observe(root.querySelector('.view-lines'), { childList: true, subtree: true, characterData: true });
  });
  for (let i = 0; i < KEYS; i += 1) {
    const key = TEXT[i % TEXT.length];
    await page.keyboard.press(i % TEXT.length === TEXT.length - 1 ? 'Enter' : key === ' ' ? 'Space' : key);
    await page.waitForTimeout(60);
  }
  const times = await page.evaluate(() => window.fxTimes);
  const found = { times };
  if (traces) {
    await w.command('Developer: Show Running Extensions');
    found.activation = {};
    for (const name of ['fx-lsp', 'empty']) {
      const row = page.locator('.runtime-extensions-editor .monaco-list-row', { hasText: name }).first();
      while (!(await row.isVisible())) {
        await page.keyboard.press('PageDown'); // rows out of sight are not there
        await page.waitForTimeout(200);
      }
      found.activation[name] = await row.innerText();
    }
  }
  return found;
});
