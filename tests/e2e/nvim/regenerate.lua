-- Triton kernels that are saved, edited by hand, and updated once the function has changed.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result
local SAVED = 'm_soft_kernels%.py$'

drive.run(function()
  drive.open(vim.env.FX_FILE)
  local source = drive.source
  drive.wait('a lens', function()
    return drive.lens('def soft'):find('generate Triton kernel', 1, true)
  end)
  drive.go('def soft', 'soft')
  vim.cmd('FxKernel!')
  drive.shown(SAVED, 'tl.store(')
  local kernels = drive.view(SAVED)
  result.current = vim.api.nvim_get_current_buf() == kernels

  local function lens(wanted)
    drive.source = kernels
    return drive.wait('a lens over the file: ' .. wanted, function()
      local found = drive.lenses()['1'] or ''
      return found:find(wanted, 1, true) and found
    end)
  end
  result.before = lens('· up to date')
  drive.replace('cols = tl.arange(0, BLOCK)', 'cols = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)')
  local edited = drive.text(kernels)

  drive.source = source
  drive.replace('* 2', '* 3')
  result.changed = lens('has changed since')

  vim.api.nvim_set_current_buf(kernels)
  vim.api.nvim_win_set_cursor(0, { vim.api.nvim_buf_line_count(kernels), 0 })
  vim.cmd('let &undolevels = &undolevels') -- what follows is undone on its own
  vim.cmd('FxKernel!')
  result.merged = drive.shown(SAVED, '* 3.0')
  result.after = lens('· up to date')
  result.modified = vim.bo[kernels].modified

  vim.cmd('undo')
  result.undone = drive.text(kernels) == edited
  vim.api.nvim_exec_autocmds('CursorHold', { buffer = kernels })
  lens('has changed since')
end)
