-- A large real file: what is shown over its functions and modules.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

drive.run(function()
  drive.open(vim.env.FX_FILE)
  for _, definition in ipairs(vim.fn.json_decode(vim.env.FX_WANTED)) do
    drive.wait('a lens over ' .. definition, function()
      return drive.lens(definition) ~= ''
    end, tonumber(vim.env.FX_DEADLINE))
  end
  result.lenses = drive.lenses()
  result.hover_name = drive.hover('def rotate_half', 'rotate_half')
  result.hover_expression = drive.hover('torch.cat((-x2, x1), dim=-1)', 'cat')
  if vim.lsp.inlay_hint then
    drive.go('def rotate_half')
    vim.cmd('normal! zt')
    result.hints = drive.wait('hints', function()
      local hints = drive.hints()
      return hints[tostring(drive.line('x1 = x['))] and hints
    end)
  end
  drive.click('def rotate_half', 'show forward graph')
  result.graph = drive.graph('def forward(')
end)
