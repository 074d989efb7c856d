// What was measured on an H200: the view, its pictures as files, in both themes; the user's hosts.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { drive, plain } from './drive.mjs';

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const code = w.editor('/norms.py');
  const view = w.webview();
  const body = view.locator('body');
  const picks = page.locator('.quick-input-widget:visible .monaco-list-row');
  const rows = async (title) => {
    await page.locator('.quick-input-title', { hasText: title, visible: true }).waitFor();
    await picks.first().waitFor();
    return (await picks.allTextContents()).map(plain);
  };

  await w.lens('compile', code).waitFor();
  await page.keyboard.press('Control+B');
  await w.click(code, 'x.pow(2)');
  await w.command('FX: Show Benchmarks');
  await view.locator('body[data-state="ready"]').waitFor();
  found.rows = (await body.locator('section[data-what="both"] table').first().innerText()).split('\n');
  found.figures = await body.locator('figure').evaluateAll((all) => all.map((one) => `${one.closest('section').dataset.what} ${one.dataset.kind}`));
  found.described = await body.locator('figure svg').evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')));
  found.notes = await body.locator('.note').count();
  const { x: border } = await page.locator('.editor-group-container').last().boundingBox();
  await page.mouse.move(border, 700);
  await page.mouse.down();
  await page.mouse.move(border - 90, 700, { steps: 5 });
  await page.mouse.up();
  await page.mouse.move(400, 780);
  await w.traced();
  await page.waitForTimeout(500);
  await w.shot('benchmark');
  const more = body.locator('button.more').first();
  await more.focus();
  await page.keyboard.press('Enter');
  found.warning = await body.locator('tr.warning:visible').first().innerText();
  await body.locator('figure[data-kind="times"] button').first().click();
  await page.locator('.quick-input-widget:visible input').first().waitFor();
  await page.keyboard.press('Enter');
  await w.until(() => existsSync(join(process.env.FX_FOLDER, 'rms_norm.h200.forward.times.svg')), 'the picture as a file');

  await w.command('Preferences: Toggle between Light/Dark Themes');
  await view.locator('body.vscode-light').waitFor();
  await w.shot('benchmark-light');
  await w.command('Preferences: Toggle between Light/Dark Themes');
  await view.locator('body.vscode-dark').waitFor();
  await w.command('View: Close Editor');

  await w.click(code, 'x.mean(-1');
  await w.command('FX: Show Benchmarks');
  await body.locator('h1', { hasText: 'layer_norm' }).waitFor();
  found.tabs = await body.locator('[role="tab"]').allTextContents();
  await body.locator('[role="tab"]', { hasText: 'h200' }).click();
  await page.keyboard.press('ArrowLeft');
  await body.locator('[role="tabpanel"][aria-label="another"]').waitFor();
  found.fresh = await body.getAttribute('data-stale');
  await page.keyboard.press('ArrowRight');
  await body.locator('[role="tabpanel"][aria-label="h200"]').waitFor();
  found.slower = await body.locator('.note.worse').innerText();
  await body.locator('figure[data-kind="history"]').first().scrollIntoViewIfNeeded();
  found.marked = await body.locator('figure[data-kind="history"]').first().locator('text').allTextContents();
  await w.shot('benchmark-history');
  await body.locator('[role="tab"]', { hasText: 'all hosts' }).click();
  found.across = (await body.locator('table').innerText()).split('\n').slice(0, 3);
  await w.command('View: Close Editor');

  await w.click(code, 'x.pow(2)');
  await w.command('FX: Edit GPU Hosts');
  const hosts = w.editor('hosts.toml');
  await w.shows(hosts, '# [hosts.h200]');
  found.created = existsSync(process.env.FX_HOSTS);
  await hosts.click();
  await page.keyboard.press('Control+A');
  await page.keyboard.press('Delete');
  await page.keyboard.type('[hosts.box]\ncommand = "false"\n');
  await page.keyboard.press('Control+S');
  await w.until(async () => existsSync(process.env.FX_HOSTS), 'the file of hosts');
  await page.locator('.tabs-container .tab', { hasText: 'norms.py' }).click();

  await w.click(code, 'x.pow(2)');
  await w.command('FX: Benchmark…');
  found.asked = await rows('Benchmark rms_norm on');
  await page.keyboard.press('Escape');
  await w.command('FX: Pick GPU Host');
  found.offered = await rows('Where do benchmarks run?');
  await w.choose('box');
  await w.until(async () => { // the setting counts once its file was read again
    await w.command('FX: Benchmark…');
    await rows('Benchmark rms_norm on');
    found.picked = (await picks.filter({ has: page.locator('.monaco-checkbox[aria-checked="true"]') }).allTextContents()).map(plain);
    await page.keyboard.press('Escape');
    return found.picked[0]?.startsWith('box');
  }, 'the host that was picked');
  return found;
});
