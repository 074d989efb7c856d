-- The comment that says what to trace with: written by a code action, completed and checked while it is edited.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('a lens', function()
    return drive.lens('def gate'):find('^%d')
  end)

  drive.go('def gate', 'gate')
  vim.ui.select = function(items, options, choose)
    result.action = options.format_item(items[1])
    choose(items[1])
  end
  vim.lsp.buf.code_action()
  drive.wait('the comment', function()
    return drive.text(drive.source):find('# fx:', 1, true)
  end)
  result.pinned = drive.text(drive.source)
  repeat
    result.hover = drive.hover('def gate', 'gate')
  until not result.hover:find('stale', 1, true)

  local line, column = drive.line('# fx: ')
  local params = {
    textDocument = vim.lsp.util.make_text_document_params(drive.source),
    position = { line = line - 1, character = column + #'# fx: x=' },
  }
  for _, answer in pairs(vim.lsp.buf_request_sync(drive.source, 'textDocument/completion', params, 5000)) do
    result.completion = answer.result[1].label
  end

  drive.replace('# fx: x=f32', '# fx: x=f99')
  result.problems = drive.wait('a problem of the comment', function()
    local found = drive.problems()
    return #found == 1 and found
  end)
end)
