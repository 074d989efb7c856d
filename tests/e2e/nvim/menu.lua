-- The lenses that a target has by default, and the menu of one.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

drive.run(function()
  drive.open(vim.env.FX_FILE)
  result.lens = drive.wait('a lens', function()
    return drive.lens('def gate') ~= '' and drive.lens('def gate')
  end)
  drive.click('def gate', 'graphs', 'show backward graph')
  result.graph = drive.graph('def backward(')
end)
