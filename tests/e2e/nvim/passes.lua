-- The passes of the compiler, and passes of one's own: chosen from a list, run from a lens, run again after an edit.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

local view, shown = drive.view, drive.shown

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('a lens', function()
    return drive.lens('def gate'):find('^%d')
  end)

  drive.go('def gate', 'gate')
  vim.ui.select = function(items, options, choose)
    result.steps = vim.tbl_map(options.format_item, items)
    for _, item in ipairs(items) do
      if item.stage == 'decomposed' then
        return choose(item)
      end
    end
  end
  require('fx_lsp').passes()
  result.diff = shown('decomposed.diff', '+++ decomposed')
  result.filetype = vim.bo[view('decomposed.diff')].filetype

  local pages = {
    FxPartitions = 'gate.table',
    FxDebug = 'gate.aliasing',
    FxSummary = 'gate.summary',
    FxBreaks = 'gate.breaks',
    FxRecompiles = 'gate.recompiles',
  }
  for command, title in pairs(pages) do
    vim.api.nvim_set_current_win(vim.fn.bufwinid(drive.source))
    drive.go('def gate', 'gate')
    vim.cmd(command)
    result[command] = shown(title, '# torch')
  end

  vim.api.nvim_set_current_win(vim.fn.bufwinid(drive.source))
  result.lens = drive.wait('the lens of the pass', function()
    local lens = drive.lens('def relu_to_gelu')
    return lens:find('run on gate', 1, true) and lens
  end)
  drive.go('def relu_to_gelu', 'relu_to_gelu')
  vim.ui.select = function(items, _, choose)
    choose(items[1])
  end
  vim.lsp.codelens.run()
  result.run = shown('gate.run', '+++ pass:relu_to_gelu')

  drive.replace('aten.gelu.default', 'aten.tanh.default')
  result.again = shown('gate.run', 'aten.tanh.default(')

  drive.replace('node.target = aten.tanh.default', 'node.target = missing')
  result.problems = drive.wait('the error of the pass', function()
    local found = drive.problems()
    return #found == 1 and found
  end)
end)
