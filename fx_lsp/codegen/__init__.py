"""Generate a Triton file from ATen graphs. `docs/explanation/codegen.md` explains the steps in order."""

from fx_lsp.codegen.lower import indexing as indexing
from fx_lsp.codegen.lower import pointwise as pointwise
from fx_lsp.codegen.lower import random as random
from fx_lsp.codegen.lower import reductions as reductions
from fx_lsp.codegen.lower import views as views
