-- Several files in one editor: what is shown of each, and what a look at one place of it gives.
-- $FX_FILE has a list of `{ path, lenses, hints, problems, hover = { text, inner }, graph = { definition, title } }`;
-- `lenses` and `hints` name lines that have some, `problems` is a number.
local drive = dofile(vim.env.FX_DRIVE)
local fx = require('fx_lsp')
local result = drive.result

local function has_all(shown, wanted)
  for _, text in ipairs(wanted) do
    if not shown[tostring(drive.line(text))] then
      return false
    end
  end
  return shown
end

local function look(file)
  drive.open(file.path)
  drive.wait('lenses and problems of ' .. file.path, function()
    local _, status = fx.status()
    return status and status.quiescent and has_all(drive.lenses(), file.lenses) and #drive.problems() >= file.problems
  end)
  local seen = { buffer = drive.source, lenses = drive.lenses(), health = select(2, fx.status()).health }
  seen.hover = drive.hover(unpack(file.hover))
  seen.hints = drive.wait('hints of ' .. file.path, function()
    return has_all(drive.hints(), file.hints)
  end)
  if file.graph ~= vim.NIL then
    local definition, title = unpack(file.graph)
    drive.click(definition, title)
    seen.graph = drive.graph('def ' .. title:match('show (%w+) graph') .. '(')
    drive.go(definition)
    vim.cmd('only')
  end
  return seen
end

drive.run(function()
  result.files = vim.tbl_map(look, vim.fn.json_decode(vim.fn.readfile(vim.env.FX_FILE)))
  -- By now nothing is on its way any more.
  for _, seen in ipairs(result.files) do
    drive.source = seen.buffer
    seen.problems = drive.problems()
  end
end)
