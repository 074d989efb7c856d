// A benchmark on this machine: from a lens, stopped; with options; stale after an edit; there after a reload.

import { drive, plain } from './drive.mjs';

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const code = w.editor('/model.py');
  const view = w.webview();
  const body = view.locator('body');
  const input = page.locator('.quick-input-widget:visible input').first();
  const ok = page.locator('.quick-input-widget:visible .quick-input-action .monaco-button', { hasText: 'OK' });
  const steps = [];
  const step = async (number) => {
    const title = page.locator('.quick-input-title', { hasText: `(${number} of 6)`, visible: true });
    await title.waitFor();
    steps.push(plain(await title.textContent()));
  };
  const only = async (...names) => {
    for (const row of await page.locator('.quick-input-widget:visible .monaco-list-row').all()) {
      const wanted = names.includes(plain(await row.locator('.label-name').first().textContent()));
      if (wanted !== ((await row.locator('.monaco-checkbox').getAttribute('aria-checked')) === 'true')) {
        await row.click();
      }
    }
    await ok.click();
  };

  await w.lens('graphs', code).click();
  await w.choose('benchmark');
  await body.locator('.now', { hasText: 'local' }).waitFor();
  await w.until(async () => /: |generating/.test(await body.locator('.now').innerText()), 'progress');
  found.tabs = await w.tabs();
  found.progress = plain(await body.locator('.now').innerText());
  await w.shot('benchmark-progress');
  await body.locator('button', { hasText: 'Cancel' }).click();
  await view.locator('body[data-running="0"]').waitFor();
  found.cancelled = { runs: await body.getAttribute('data-runs'), text: plain(await body.innerText()) };

  await w.click(code, 'torch.relu');
  await w.command('FX: Benchmark with Options…');
  await step(1);
  await ok.click();
  await step(2);
  await only('forward');
  await step(3);
  await only('eager', 'torchscript');
  await step(4);
  found.inputs = await input.inputValue();
  await input.fill('x=f32[N, 32');
  await page.locator('.quick-input-message', { hasText: 'Write them like' }).waitFor();
  await input.fill('x=f32[N, 32]');
  await page.keyboard.press('Enter');
  await step(5);
  await input.fill('M=64,256');
  await page.locator('.quick-input-message', { hasText: 'No size of the inputs is called M' }).waitFor();
  await input.fill('N=64,256');
  await page.keyboard.press('Enter');
  await step(6);
  await ok.click();
  found.steps = steps;
  await view.locator('body[data-runs="1"]').waitFor();
  found.table = (await body.locator('section[data-what="forward"] table').first().innerText()).split('\n');
  found.bars = await body.locator('figure[data-kind="times"] [aria-label="bar"] rect').count();
  found.figures = await body.locator('figure').evaluateAll((all) => all.map((one) => one.dataset.kind));
  found.options = await body.locator('select option').allTextContents();

  await w.click(code, 'torch.relu');
  await page.keyboard.press('End');
  await page.keyboard.type(' + 1');
  await view.locator('body[data-stale="true"]').waitFor();
  found.stale = plain(await body.locator('.note').first().innerText());
  await w.shot('benchmark-stale');
  await w.lens('stale · measured', code).click();
  await page.waitForTimeout(1000);
  found.opened = await w.tabs();

  await w.reload('fxLsp.benchmark');
  await view.locator('body[data-runs="1"]').waitFor();
  found.restored = plain(await body.locator('h1').innerText());
  found.refused = w.said.filter((text) => /Content.Security.Policy/i.test(text) && /benchmark|style/i.test(text));
  return found;
});
