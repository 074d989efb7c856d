"""From ATen graphs to a Triton file; `docs/codegen.md` explains the chain in order."""

from fx_lsp.codegen.lowerings import indexing as indexing
from fx_lsp.codegen.lowerings import pointwise as pointwise
from fx_lsp.codegen.lowerings import random as random
from fx_lsp.codegen.lowerings import reductions as reductions
from fx_lsp.codegen.lowerings import views as views
