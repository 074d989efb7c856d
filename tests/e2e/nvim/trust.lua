-- The question whether code of the workspace may run: asked, answered, revoked.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result
local answer

local function asked(prompt, titles, choose)
  result.questions = (result.questions or 0) + 1
  result.question, result.titles, answer = prompt, titles, choose
end

vim.ui.select = function(items, options, choose) -- Neovim 0.11
  asked(options.prompt, vim.tbl_map(options.format_item, items), function()
    choose(items[1])
  end)
end
vim.fn.inputlist = function(lines) -- Neovim 0.7, which waits for the answer
  asked(lines[1], vim.list_slice(lines, 3), function() end)
  return 1
end

local function refused()
  return drive.wait('a refusal', function()
    local said = require('fx_lsp').status()
    -- Neovim 0.7 leaves the last lenses where there are none.
    return said:find('not trusted', 1, true) and (vim.fn.has('nvim-0.11') == 0 or drive.lens('def gate') == '')
  end)
end

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('the question', function()
    return answer
  end)
  if vim.fn.has('nvim-0.11') == 1 then
    refused()
  end
  answer()
  result.lens = drive.wait('a lens', function()
    local lens = drive.lens('def gate')
    return lens:find('^%d') and lens
  end)
  vim.cmd('FxRevokeTrust')
  refused()
  vim.cmd('FxTrust')
  drive.wait('another question', function()
    return result.questions == 2
  end)
  answer()
  drive.wait('a lens', function()
    local said = require('fx_lsp').status()
    return not said:find('not trusted', 1, true) and drive.lens('def gate'):find('^%d')
  end)
end)
