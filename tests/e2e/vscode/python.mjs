// A workspace whose interpreter the Python extension has selected.

import { drive } from './drive.mjs';

await drive(async (w) => ({ lenses: await w.lenses('ops forward') }));
