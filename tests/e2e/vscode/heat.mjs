// The column of costs by line: estimated, of the memory that is saved, in both themes, measured; and gone again.

import { drive, plain } from './drive.mjs';

await drive(async (w) => {
  const found = {};
  const { page } = w;
  const code = w.editor('/attention.py');

  /** The cells of the column, top to bottom: the text before each line, and how opaque its color is. */
  const cells = async () =>
    code.evaluate((root) => {
      const rows = [...root.querySelectorAll('.view-lines .view-line')].sort((a, b) => Number.parseFloat(a.style.top) - Number.parseFloat(b.style.top));
      return rows.map((row) => {
        const drawn = [...row.querySelectorAll('span')].map((span) => getComputedStyle(span, '::before')).find((style) => style.content !== 'none');
        const opacity = drawn && Number(/rgba\(.*, ([\d.]+)\)/.exec(drawn.backgroundColor)?.[1] ?? 1);
        return { code: row.textContent, share: drawn ? drawn.content.replaceAll('"', '').trim() : null, opacity: opacity ?? 0 };
      });
    });
  const read = async () => (await cells()).map((cell) => ({ ...cell, code: plain(cell.code).trim(), share: cell.share && plain(cell.share).trim() }));
  const of = async (text) => (await read()).find((cell) => cell.code.includes(text));
  const drawn = (text) => w.until(async () => (await of(text))?.share, `a cell before ${text}`, async () => JSON.stringify(await read()));
  /** What the hover of the cell before a line says. */
  const hover = async (text) => {
    const line = code.locator('.view-lines .view-line').filter({ hasText: text }).first();
    const box = await line.boundingBox();
    await page.mouse.move(box.x + 20, box.y + box.height / 2);
    const shown = page.locator('.monaco-hover:visible').filter({ hasText: /measured.on|estimated.from/ });
    await shown.waitFor();
    return plain(await shown.innerText());
  };

  await w.lens('ops forward', code).waitFor();
  await w.traced();
  await page.keyboard.press('Control+B');
  await w.click(code, 'q @ k.mT');
  await w.command('FX: Toggle Costs by Line');
  await drawn('q @ k.mT');
  found.estimated = await read();
  found.hover = await hover('q @ k.mT');
  await w.shot('heat');
  await page.mouse.move(900, 850);

  await w.command('Preferences: Toggle between Light/Dark Themes');
  await page.locator('.monaco-workbench.vs').waitFor();
  await w.shot('heat-light');
  await w.command('Preferences: Toggle between Light/Dark Themes');
  await page.locator('.monaco-workbench.vs-dark').waitFor();

  await w.click(code, 'q @ k.mT');
  await w.command('FX: Benchmark by Line');
  await w.until(async () => {
    await page.mouse.move(900, 850);
    await page.waitForTimeout(700);
    return (await hover('q @ k.mT')).includes('measured on');
  }, 'a measured time');
  found.measured = await hover('q @ k.mT');
  await w.shot('heat-measured');
  await page.mouse.move(900, 850);

  await w.command('FX: Toggle Costs by Line');
  await w.until(async () => (await read()).every((cell) => cell.share === null), 'no column');
  return found;
});
