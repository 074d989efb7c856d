-- What each line costs, at the right edge: estimated, measured on this machine, and gone again.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

local function column()
  local space = vim.api.nvim_get_namespaces().fx_lsp_heat
  local shown = {}
  for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(drive.source, space, 0, -1, { details = true })) do
    local chunk = mark[4].virt_text[1]
    table.insert(shown, { mark[2] + 1, chunk[1], chunk[2] })
  end
  return shown
end

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('lenses', function()
    return drive.lens('def gate'):find('benchmark', 1, true) and drive.lens('class Block'):find('benchmark', 1, true)
  end)
  drive.go('def gate', 'gate')
  vim.cmd('FxHeat')
  result.estimated = drive.wait('the estimate', function()
    return #column() > 0 and column()
  end)
  vim.cmd('FxBenchByLine local')
  result.measured = drive.wait('the times', function()
    return #column() > 0 and not vim.deep_equal(column(), result.estimated) and column()
  end)
  result.windows = #vim.api.nvim_list_wins()
  vim.cmd('FxHeat')
  result.hidden = column()
end)
