// A workspace that is not trusted, then trusted.

import { existsSync } from 'node:fs';
import { drive, plain } from './drive.mjs';

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const toast = page.locator('.notification-toast', { hasText: 'fx-lsp traces nothing here' });
  await toast.waitFor();
  found.told = plain(await toast.innerText());
  await page.locator('.activitybar .action-item', { has: page.locator('[aria-label^="FX"]') }).first().click();
  const rows = page.locator('.tree-explorer-viewlet-tree-view .monaco-list-row');
  await rows.filter({ hasText: 'planted' }).waitFor();
  found.tree = (await rows.allTextContents()).map(plain);
  await page.keyboard.press('Control+Shift+M');
  await page.locator('.markers-panel .monaco-list-row').first().waitFor();
  found.problems = (await page.locator('.markers-panel .monaco-list-row').allTextContents()).map(plain);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await w.command('FX: Copy Report for an Issue');
  await page.locator('.notification-toast', { hasText: 'The report is on the clipboard' }).waitFor();
  found.report = await page.evaluate(() => navigator.clipboard.readText());
  found.ran = existsSync(process.env.FX_RAN);
  found.lenses = await page.locator('.codelens-decoration a').count();
  await w.shot('untrusted');

  await w.command('Notifications: Show Notifications'); // a toast goes by itself
  const notice = page.locator('.notifications-center .notification-list-item', { hasText: 'fx-lsp traces nothing here' });
  await notice.locator('.monaco-button', { hasText: 'Manage Workspace Trust' }).click();
  await page.locator('.workspace-trust-editor .monaco-button', { hasText: /^Trust$/ }).first().click();
  await page.keyboard.press('Escape');
  found.trusted = await w.lenses('ops forward');
  return found;
});
