"""`python -m fx_lsp`."""

from fx_lsp.cli import main

raise SystemExit(main())
