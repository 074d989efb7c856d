// The browser of all scenarios: writes down where it is, and stays until it is ended.

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { FX_CHROMIUM, FX_PLAYWRIGHT } = process.env;
const { chromium } = await import(pathToFileURL(join(FX_PLAYWRIGHT, 'index.mjs')).href);
const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1',
];

const server = await chromium.launchServer({ executablePath: FX_CHROMIUM, args: ARGUMENTS });
console.log(server.wsEndpoint());
