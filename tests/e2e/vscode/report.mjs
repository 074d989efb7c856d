// The report for an issue, as it is on the clipboard.

import { drive, plain } from './drive.mjs';

await drive(async (w) => {
  const { page } = w;
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await w.lenses('ops forward');
  await w.traced();
  await w.command('FX: Copy Report for an Issue');
  const toast = page.locator('.notification-toast', { hasText: 'The report is on the clipboard' });
  await toast.waitFor();
  await w.shot('report');
  return { toast: plain(await toast.innerText()), report: await page.evaluate(() => navigator.clipboard.readText()) };
});
