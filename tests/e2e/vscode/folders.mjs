// A workspace of two folders, each with an interpreter of its own; commands in terminals; a second window.

import { existsSync, readFileSync } from 'node:fs';
import { address, drive, Workbench } from './drive.mjs';

const { FX_OTHER: other, FX_RECORDED: recorded, FX_RAN: ran } = process.env;

await drive(async (w) => {
  const found = {};
  const { page } = w;
  found.first = await w.lenses('ops forward', w.editor('/one/model.py'));
  await w.open('other.py');
  found.second = await w.lenses('ops forward', w.editor('/two/other.py'));

  await w.command('FX: Record Inputs of a Run…');
  const input = await w.asked('The program whose calls to record');
  await input.fill(`python run.py "two words"`);
  await page.keyboard.press('Enter');
  await w.until(() => existsSync(recorded), 'the recorded program');
  found.recorded = JSON.parse(readFileSync(recorded, 'utf8'));

  const before = readFileSync(ran, 'utf8').split('\n').length;
  await w.command('FX: Check This File');
  await w.until(() => readFileSync(ran, 'utf8').split('\n').length > before, 'a check with the interpreter of the folder');

  const second = new Workbench(await page.context().newPage(), []);
  await second.page.goto(address(other, `${other}/other.py`));
  found.window = await second.lenses('ops forward', second.editor('/two/other.py'));
  await page.bringToFront();
  found.still = await w.lenses('ops forward', w.editor('/two/other.py'));
  return found;
});
