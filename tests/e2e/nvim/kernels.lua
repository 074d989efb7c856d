-- Triton kernels of a function beside it: opened, compiled, hovered over, and made again after an edit.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

local view, shown = drive.view, drive.shown

local function in_view(pattern, run)
  local source = drive.source
  drive.source = view(pattern)
  local found = run()
  drive.source = source
  return found
end

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('a lens', function()
    return drive.lens('def squares'):find('generate Triton kernel', 1, true)
  end)
  drive.go('def squares', 'squares')
  vim.cmd('FxKernel')
  shown('%.triton%.py', 'tl.store(')
  result.filetype = vim.bo[view('%.triton%.py')].filetype

  vim.cmd('FxKernel ptx cuda:80')
  shown('%.ptx%.txt', 'st.global')
  result.listing = { drive.text(view('%.ptx%.txt')):match('^[^\n]*'), vim.bo[view('%.ptx%.txt')].filetype }
  in_view('%.triton%.py', function()
    result.hover = drive.hover('tl.store(')
    result.lens = drive.wait('a lens of the kernel', function()
      local lens = drive.lens('def squares_kernel(')
      return lens:find('registers', 1, true) and lens
    end)
    result.problems = drive.wait('a problem', function()
      local found = drive.problems()
      return #found > 0 and found
    end)
  end)

  drive.go('x * x', 'x * x')
  vim.cmd('doautocmd CursorMoved')
  result.related = drive.wait('lines that belong together', function()
    local space, found = vim.api.nvim_get_namespaces().fx_lsp_related, {}
    for name, pattern in pairs({ kernels = '%.triton%.py', ptx = '%.ptx%.txt' }) do
      for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(view(pattern), space, 0, -1, {})) do
        found[name] = vim.api.nvim_buf_get_lines(view(pattern), mark[2], mark[2] + 1, false)[1]
      end
    end
    return found.ptx and found
  end)

  drive.replace('x * x', 'x * x - 3')
  result.again = shown('%.triton%.py', '- 3.0')
  in_view('%.triton%.py', function()
    result.checked = drive.wait('the result of the check', function()
      local lens = drive.lens('squares as')
      return lens:find('with the original', 1, true) and lens
    end)
  end)
end)
