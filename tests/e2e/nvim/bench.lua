-- A benchmark on this machine: its words completed, its page, which follows, its lens, and one that is stopped.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

local PAGE = '%.benchmark%.txt'

local function page()
  return drive.view(PAGE) and drive.text(drive.view(PAGE)) or ''
end

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('a lens', function()
    return drive.lens('def double'):find('benchmark', 1, true)
  end)
  drive.go('def double', 'double')
  result.completed = {
    words = vim.fn.getcompletion('FxBench ', 'cmdline'),
    hosts = vim.fn.getcompletion('FxBench lo', 'cmdline'),
    what = vim.fn.getcompletion('FxBench what=forward,b', 'cmdline'),
  }
  vim.cmd('FxBench local sideways=yes')

  vim.cmd('FxBench local what=forward')
  drive.shown(PAGE, 'measuring on local')
  result.window = { vim.bo[drive.view(PAGE)].filetype, #vim.api.nvim_list_wins() }
  drive.wait('what is measured', function()
    local doing = page():match('measuring on local: ([^\n]+)')
    return doing and not doing:find('generating', 1, true)
  end)
  drive.go('def double', 'double')
  vim.cmd('FxBench!')
  result.stopped = drive.shown(PAGE, 'double has not been measured yet.')

  drive.go('def double', 'double')
  vim.cmd('FxBench local what=forward variants=eager inputs=x=f32[32, 16]')
  result.page = drive.shown(PAGE, '\n  eager ')
  result.lens = drive.wait('a lens', function()
    local lens = drive.lens('def double')
    return lens:find('measured', 1, true) and lens
  end)
end)
