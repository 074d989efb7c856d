-- The entry for nvim-lspconfig, without the plugin.
local drive = dofile(vim.env.FX_DRIVE)

drive.run(function()
  drive.open(vim.env.FX_FILE)
  local client = drive.wait('a client', function()
    return vim.lsp.get_clients({ name = 'fx_lsp', bufnr = 0 })[1]
  end)
  drive.result.root = client.config.root_dir
  drive.result.problems = drive.wait('a problem', function()
    local problems = drive.problems()
    return #problems > 0 and problems
  end)
  drive.result.own = vim.g.fx_entry
end)
