---@brief
---
--- https://github.com/fx-lsp/fx-lsp
---
--- A language server for PyTorch: shapes, graphs, costs and mistakes of tensor code.
--- It runs next to other Python servers.
---
--- Install it with `pip install fx-lsp`. The Python of your project needs torch, and does not need fx-lsp.
---
--- The plugin in `editors/nvim` of the repository adds commands, such as `:FxGraph`.
---@type vim.lsp.Config
return {
  cmd = { 'fx-lsp', 'serve' },
  filetypes = { 'python' },
  root_markers = { 'pyproject.toml', 'setup.py', 'setup.cfg', '.git' },
}
