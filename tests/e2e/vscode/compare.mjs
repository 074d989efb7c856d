// Three graphs in columns: chosen from a list, with the same row chosen in all, and only what differs.

import { drive, plain } from './drive.mjs';

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const code = w.editor('/attention.py');
  const view = w.webview();
  const body = view.locator('body');
  const ok = page.locator('.quick-input-widget:visible .quick-input-action .monaco-button', { hasText: 'OK' });

  await w.lens('22 ops forward', code).waitFor();
  await w.traced();
  await page.keyboard.press('Control+B');
  await w.click(code, 'F.softmax');
  await w.command('FX: Compare Graphs…');
  await page.locator('.quick-input-title', { hasText: 'Compare graphs of attention', visible: true }).waitFor();
  const picks = page.locator('.quick-input-widget:visible .monaco-list-row');
  await picks.first().waitFor();
  found.offered = (await picks.locator('.label-name').allTextContents()).map(plain);
  for (const label of ['forward', 'joint', 'joint:remove_noop_ops']) {
    const input = page.locator('.quick-input-widget:visible input[type="text"]').first();
    await input.fill(label);
    await picks.filter({ has: page.locator('.label-name', { hasText: new RegExp(`^${label}$`) }) }).first().click();
    await input.fill('');
  }
  await ok.click();

  await view.locator('body[data-state="ready"]').waitFor();
  found.tabs = await w.tabs();
  found.heads = await body.locator('th').allTextContents();
  found.rows = [await body.getAttribute('data-rows'), await body.getAttribute('data-unlike')].map(Number);
  await body.locator('#columns').focus();
  await page.keyboard.press('n');
  await page.keyboard.press('n');
  found.chosen = await body.locator('tr.chosen td').allTextContents();
  await w.shot('compare');
  await body.locator('#only').check();
  found.only = await body.locator('tbody tr:visible').count();
  await w.shot('compare-only');
  await body.locator('#only').uncheck();

  await w.command('Preferences: Toggle between Light/Dark Themes');
  await view.locator('body.vscode-light').waitFor();
  await w.shot('compare-light');

  await body.locator('td', { hasText: 'aten._softmax.default' }).first().dblclick();
  await w.at(13);
  return found;
});
