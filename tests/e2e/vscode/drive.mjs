// Drives VS Code in Chromium: the scenarios beside this file import `drive`, and what they return is the result.

import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { FX_BROWSER, FX_PLAYWRIGHT, FX_RESULT, FX_SHOTS, FX_URL } = process.env;
const { chromium } = await import(pathToFileURL(join(FX_PLAYWRIGHT, 'index.mjs')).href);
const LONG = 600_000;

/** Opens `file` in `folder`, runs `scenario`, writes what it returns to $FX_RESULT; a failure with a picture of it. */
export async function drive(scenario) {
  const { FX_FILE: file, FX_FOLDER: folder } = process.env;
  const browser = await chromium.connect(FX_BROWSER);
  const context = await browser.newContext({ viewport: { width: 1500, height: 900 }, bypassCSP: false });
  context.setDefaultTimeout(LONG);
  const page = await context.newPage();
  page.on('dialog', (dialog) => dialog.accept()); // what was not saved is lost
  const said = [];
  page.on('console', (message) => said.push(message.text()));
  let result;
  try {
    await page.goto(address(folder, file));
    await page.locator('.monaco-workbench').waitFor();
    const workbench = new Workbench(page, said);
    result = await scenario(workbench);
  } catch (error) {
    await page.screenshot({ path: picture('failure') }).catch(() => undefined);
    result = { error: `${error.stack ?? error}`, picture: picture('failure'), messages: said.slice(-30) };
  }
  for (const open of context.pages()) {
    await open.goto('about:blank').catch(() => undefined); // a window that is left ends its extensions
  }
  await browser.close();
  writeFileSync(FX_RESULT, JSON.stringify(result));
}

/** Where VS Code is with a folder, or with a workspace of several, and a file open in it. */
export function address(folder, file) {
  const { host } = new URL(FX_URL);
  const payload = file ? `&payload=${encodeURIComponent(JSON.stringify([['openFile', `vscode-remote://${host}${file}`]]))}` : '';
  const opened = folder.endsWith('.code-workspace') ? 'workspace' : 'folder';
  return `${FX_URL}/?${opened}=${encodeURIComponent(folder)}${payload}`;
}

function picture(name) {
  mkdirSync(FX_SHOTS, { recursive: true });
  return join(FX_SHOTS, `${name}.png`);
}

/** Text as it was written: Monaco shows spaces as non-breaking ones. */
export function plain(text) {
  return text.replaceAll('\u00a0', ' ').replaceAll('\u200c', '');
}

/** What a person does in VS Code, and what they see. */
export class Workbench {
  constructor(page, said) {
    this.page = page;
    this.said = said;
  }

  /** Takes a picture, and writes beside it the lenses that are to be seen in it. */
  async shot(name) {
    process.stderr.write(`${name}: ${Math.round(performance.now())} ms\n`);
    await this.page.waitForTimeout(300);
    await this.page.screenshot({ path: picture(name) });
    const lenses = await this.page.locator('.codelens-decoration:visible').allTextContents();
    writeFileSync(picture(name).replace('.png', '.txt'), lenses.map(plain).join('\n'));
  }

  /** Runs a command of the palette, and chooses the rows with these texts in what it then asks. */
  async command(title, ...choices) {
    await (await this.found(`>${title}`, new RegExp(`^${escaped(title)}$`))).click();
    for (const choice of choices) {
      await this.choose(choice);
    }
  }

  /** The titles of the palette that a text finds. */
  async commands(text) {
    await this.found(`>${text}`, /./);
    await this.page.waitForTimeout(600);
    const found = await this.page.locator('.quick-input-list .monaco-list-row .label-name').allTextContents();
    await this.page.keyboard.press('Escape');
    return found.map(plain);
  }

  /** Opens the file of the workspace that a name finds. */
  async open(name) {
    await (await this.found(name, name)).click();
  }

  /** Types into the palette until it has a row with a label; the key may reach a question that is just closing. */
  async found(typed, label) {
    const input = this.page.locator('.quick-input-widget:visible input').first();
    const named = this.page.locator('.label-name', { hasText: label });
    const row = this.page.locator('.quick-input-widget:visible .monaco-list-row').filter({ has: named }).first();
    const within = { timeout: 5000 };
    await this.until(async () => {
      await this.page.keyboard.press('F1');
      const is = await input.fill(typed, within).then(() => row.waitFor(within)).then(() => true, () => false);
      if (!is) {
        await this.page.keyboard.press('Escape');
      }
      return is;
    }, `${typed} in the palette`);
    return row;
  }

  /** Chooses a row of the list that is asked from. */
  async choose(text) {
    await this.row(text).first().waitFor();
    await this.row(text).first().click();
  }

  /** Clicks a button that asks something, again if the question was closed at once: it is when the focus moves. */
  async ask(button) {
    const question = this.page.locator('.quick-input-widget:visible input').first();
    const appears = () => question.waitFor({ timeout: 5000 }).then(() => true, () => false);
    await this.until(async () => {
      await button.click();
      return appears();
    }, 'a question');
  }

  /** The field that is asked in, once the question has this text. */
  async asked(question) {
    const widget = this.page.locator('.quick-input-widget:visible').filter({ hasText: question });
    await widget.waitFor();
    return widget.locator('input').first();
  }

  row(text) {
    return this.page.locator('.quick-input-widget:visible .monaco-list-row').filter({ hasText: text });
  }

  /** The editor of the document whose URI ends with a text. */
  editor(text) {
    return this.page.locator(`.editor-instance .monaco-editor[data-uri$="${text}"]`).first();
  }

  lens(text, within = this.page) {
    return within.locator('.codelens-decoration a').filter({ hasText: text, visible: true }).first();
  }

  /** The text of all lenses in an editor, once one with this text is there. */
  async lenses(text, within = this.page) {
    await this.lens(text, within).waitFor();
    return (await within.locator('.codelens-decoration').allTextContents()).map(plain);
  }

  /** The visible text of an editor, top to bottom. */
  async text(editor) {
    const lines = await editor.locator('.view-lines .view-line').evaluateAll((rows) =>
      rows.map((row) => [Number.parseFloat(row.style.top), row.textContent]).sort(([a], [b]) => a - b).map(([, text]) => text),
    );
    return plain(lines.join('\n'));
  }

  /** Waits until an editor shows a text, and returns all that it shows. */
  async shows(editor, text) {
    await editor.waitFor();
    await this.until(async () => (await this.text(editor)).includes(text), `an editor with ${text}`, async () => this.text(editor));
    return this.text(editor);
  }

  /** Puts the cursor at the beginning of the first visible line of an editor with this text. */
  async click(editor, text) {
    const line = editor.locator('.view-lines .view-line').filter({ hasText: new RegExp(escaped(text)) }).first();
    await line.waitFor();
    let box = null; // the line may be drawn anew just now
    await this.until(async () => (box = await line.locator('span span').first().boundingBox()) !== null, `a line with ${text}`);
    await this.page.mouse.click(box.x + box.width - 3, box.y + box.height / 2); // `locator.click` may scroll the workbench
  }

  /** Waits until the cursor is on a line of the code. */
  async at(line) {
    const place = this.page.locator('.statusbar-item[id="status.editor.selection"]');
    const shown = async () => ((await place.count()) > 0 ? plain(await place.first().innerText()) : 'no place');
    await this.until(async () => (await shown()).includes(`Ln ${line},`), `the cursor on line ${line}`, async () => `${await shown()} in ${await this.tabs()}`);
  }

  /** How many decorations with this background each marked line of an editor has. */
  async marks(editor, rgb) {
    return editor.evaluate((root, wanted) => {
      const marks = [...root.querySelectorAll('.view-overlays .cdr')].filter((mark) => getComputedStyle(mark).backgroundColor.startsWith(wanted));
      const tops = marks.map((mark) => mark.parentElement.style.top);
      return [...new Set(tops)].map((top) => tops.filter((other) => other === top).length);
    }, rgb);
  }

  /** The texts of the lines of an editor that have decorations with this background. */
  async marked(editor, rgb) {
    return editor.evaluate((root, wanted) => {
      const rows = [...root.querySelectorAll('.view-lines .view-line')];
      const tops = new Set(
        [...root.querySelectorAll('.view-overlays .cdr')]
          .filter((mark) => getComputedStyle(mark).backgroundColor.startsWith(wanted))
          .map((mark) => mark.parentElement.style.top),
      );
      return rows.filter((row) => tops.has(row.style.top)).map((row) => row.textContent);
    }, rgb).then((rows) => rows.map(plain));
  }

  /** Closes the editor whose tab has a text, whichever has the focus. */
  async close(text) {
    const tab = this.page.locator('.tabs-container .tab').filter({ hasText: text }).first();
    await tab.click({ button: 'middle' });
    await tab.waitFor({ state: 'hidden' });
  }

  async tabs() {
    return (await this.page.locator('.tabs-container .tab .label-name').allTextContents()).map(plain);
  }

  status() {
    return this.page.locator('.statusbar-item').filter({ hasText: 'fx-lsp' }).first();
  }

  /** Waits until nothing is being traced, and the lenses say so. */
  async traced() {
    await this.status().locator('.codicon-check').waitFor();
    const lenses = this.page.locator('.codelens-decoration:visible');
    const texts = () => lenses.allTextContents();
    await this.until(async () => !(await texts()).some((text) => /^(stale|tracing…)/.test(plain(text))), 'fresh lenses', texts);
  }

  /** The content of the webview whose title has a text. */
  webview() {
    return this.page.frameLocator('iframe.webview.ready').last().frameLocator('iframe#active-frame');
  }

  async until(condition, what, last = async () => '') {
    const end = Date.now() + LONG;
    while (!(await condition())) {
      if (Date.now() > end) {
        throw new Error(`waited too long for ${what}; last seen:\n${await last()}`);
      }
      await this.page.waitForTimeout(100);
    }
  }

  /** Reloads the window, as after an update, once it is stored that an editor whose URI or kind has this text is open. */
  async reload(open) {
    await this.until(() => this.page.evaluate(isStored, open), `a stored state with ${open}`);
    await this.page.goto(address(process.env.FX_FOLDER)); // to name a file would open that instead
    await this.page.locator('.monaco-workbench').waitFor();
  }
}

/** Whether VS Code, which stores what is open some seconds after it changed, has stored a text. Runs in the page. */
async function isStored(text) {
  const done = (request) =>
    new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  const names = (await indexedDB.databases()).map(({ name }) => name).filter((name) => name.startsWith('vscode-web-state-db'));
  for (const name of names) {
    const database = await done(indexedDB.open(name));
    const stored = await done(database.transaction('ItemTable').objectStore('ItemTable').get('memento/workbench.parts.editor'));
    database.close();
    if (`${stored}`.includes(text)) {
      return true;
    }
  }
  return false;
}

/** Moves the mouse to a word in the line of an editor until a hover with a text shows; it hides when the editor changes. */
export async function hover(w, editor, line, word, text) {
  const { page } = w;
  const shown = page.locator('.monaco-hover:visible').filter({ hasText: text });
  await w.until(async () => {
    const { left, right, middle } = await place(editor, line, word);
    await page.mouse.move(left - 40, middle + 60);
    await page.mouse.move((left + right) / 2, middle, { steps: 5 });
    return shown.first().waitFor({ timeout: 5000 }).then(() => true, () => false);
  }, `a hover with ${text}`);
  return shown.first();
}

/** Returns where the first of such texts is on the screen. */
export async function place(editor, line, text) {
  const row = editor.locator('.view-line').filter({ hasText: new RegExp(line.replaceAll(' ', '[ \\u00a0]')) }).first();
  return row.evaluate((root, wanted) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) {
      nodes.push(walker.currentNode);
    }
    const begin = nodes.map((node) => node.textContent).join('').indexOf(wanted);
    const at = (offset) => {
      let rest = offset;
      const node = nodes.find(({ length }) => rest <= length || ((rest -= length), false));
      return [node, rest];
    };
    const range = document.createRange();
    range.setStart(...at(begin));
    range.setEnd(...at(begin + wanted.length));
    const { left, right, top, bottom } = range.getBoundingClientRect();
    return { left, right, middle: (top + bottom) / 2 };
  }, text);
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll(' ', '[ \\u00a0]');
}

export { basename };
