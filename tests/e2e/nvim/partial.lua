-- A function that fails, and one with an optional argument: what is shown of both.
local drive = dofile(vim.env.FX_DRIVE)
local fx = require('fx_lsp')
local result = drive.result

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('all lenses', function()
    return drive.lens('def fails') ~= '' and drive.lens('class Net') ~= ''
  end)
  drive.wait('the end of tracing', function()
    local _, status = fx.status()
    return status and status.quiescent
  end)
  result.lenses = drive.lenses()
  result.hints = drive.wait('hints', function()
    local hints = drive.hints()
    return next(hints) and hints
  end)
  result.faded = drive.wait('faded code', function()
    local faded = {}
    for _, found in ipairs(vim.diagnostic.get(drive.source)) do
      if found._tags and found._tags.unnecessary then
        table.insert(faded, { line = found.lnum + 1, message = found.message })
      end
    end
    return #faded > 0 and faded
  end)
  result.hover_unreached = drive.hover('x = x.tanh()', 'tanh')
  result.hover_variant = drive.hover('loss = F.cross_entropy', 'cross_entropy')
  result.hover_ran = drive.hover('y = x.sin()', 'sin')
  result.hover_behind = drive.hover('return z.cos()', 'cos')

  drive.click('def fails', 'show partial graph')
  result.partial = drive.graph('def torch(')
  drive.click('class Net', 'with targets')
  result.variant = drive.graph('def forward(')
end)
