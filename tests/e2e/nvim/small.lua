-- A small file: lenses, hovers, hints, problems, graphs, edits of the unsaved buffer, a syntax error.
local drive = dofile(vim.env.FX_DRIVE)
local fx = require('fx_lsp')
local result = drive.result

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('all lenses', function()
    return drive.lens('def gate') ~= '' and drive.lens('class Block') ~= '' and drive.lens('def mismatch') ~= ''
  end)
  drive.wait('the end of tracing', function()
    local _, status = fx.status()
    return status and status.quiescent
  end)
  result.lenses = drive.lenses()
  result.health = select(2, fx.status()).health
  result.problems = drive.wait('a problem', function()
    local found = drive.problems()
    return #found > 0 and found
  end)
  result.hover_name = drive.hover('def gate', 'gate')
  result.hover_expression = drive.hover('torch.relu(x @ w)', 'relu')
  if vim.lsp.inlay_hint then
    result.hints = drive.wait('hints', function()
      local hints = drive.hints()
      return next(hints) and hints
    end)
    vim.cmd('FxToggleHints')
    result.hints_toggled = vim.lsp.inlay_hint.is_enabled({ bufnr = 0 })
    vim.cmd('FxToggleHints')
  end

  drive.click('def gate', 'show forward graph')
  result.graph = drive.graph('def forward(')
  local graph = vim.api.nvim_get_current_buf()
  drive.click('def gate', 'show forward graph')
  drive.graph('def forward(')
  result.windows_after_second_click = #vim.api.nvim_list_wins()

  drive.replace('torch.relu', 'torch.tanh')
  drive.wait('the graph of the edited text', function()
    return drive.text(graph):find('aten.tanh', 1, true)
  end)
  result.edited = { graph = drive.text(graph), saved = not vim.bo[drive.source].modified }

  drive.replace('h * x.sum()', 'h * x.sum() + 1')
  drive.wait('the lens of the edited text', function()
    return drive.lens('def gate') ~= result.lenses[tostring(drive.line('def gate'))] and drive.lens('def gate')
      ~= '' and not drive.lens('def gate'):find('stale')
  end)
  result.edited.lens = drive.lens('def gate')

  drive.replace('def mismatch(', 'def mismatch((')
  drive.wait('stale lenses', function()
    return drive.lens('def gate'):find('^stale') and #drive.problems() > 1
  end)
  drive.wait('a graph that says that it is stale', function()
    return drive.text(graph):find('stale: from the last version', 1, true)
  end)
  result.broken = { lenses = drive.lenses(), graph = drive.text(graph), problems = drive.problems() }
  drive.replace('def mismatch((', 'def mismatch(')
  drive.wait('fresh lenses', function()
    return drive.lens('def gate') ~= '' and not drive.lens('def gate'):find('stale')
  end)
  drive.wait('a graph that does not say that any more', function()
    return not drive.text(graph):find('stale: from', 1, true)
  end)

  -- The command works anywhere in the function, and in a graph it goes to another stage.
  drive.go('return h * x.sum()')
  vim.cmd('FxGraph backward')
  result.backward = drive.graph('def backward(')
  vim.cmd('FxGraph joint')
  result.joint = drive.graph('def joint(')
  vim.cmd('only')
  drive.wait('the hidden graph to go', function()
    return not vim.api.nvim_buf_is_loaded(graph)
  end)

  -- A graph that is opened without a server waits for one; a server that is gone can be started again.
  vim.lsp.stop_client(fx.clients(), true)
  drive.wait('the end of the server', function()
    return #fx.clients() == 0
  end)
  result.status_without_server = fx.status()
  vim.cmd('edit ' .. vim.fn.fnameescape(result.graph.name))
  result.without_server = drive.text(0)
  vim.cmd('FxRestart')
  result.after_restart = drive.graph('def forward(').text
  drive.wait('lenses of the new server', function()
    return drive.lens('class Block'):find('^%d')
  end)
  vim.cmd('FxRestart')
  drive.replace('torch.tanh', 'torch.exp')
  result.after_second_restart = drive.graph('aten.exp').text
end)
