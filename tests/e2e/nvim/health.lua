-- What `:checkhealth fx_lsp` says, once the server has said what it does, or without it.
local drive = dofile(vim.env.FX_DRIVE)

vim.ui.select = function(items, _, choose) -- Neovim 0.11
  choose(items[2])
end
vim.fn.inputlist = function() -- Neovim 0.7
  return 2
end

drive.run(function()
  drive.open(vim.env.FX_FILE)
  if vim.g.fx_no_server then
    drive.wait('the end of the attempt to start', function()
      return #require('fx_lsp').clients() == 0
    end)
  else
    drive.wait('a final status', function()
      local _, status = require('fx_lsp').status()
      return status and status.quiescent
    end)
  end
  if vim.g.fx_second then
    local own = require('fx_lsp').clients()[1].config
    vim.lsp.start({ name = 'other', cmd = own.cmd, root_dir = own.root_dir })
    drive.wait('a second client', function()
      return #vim.lsp.get_clients({ name = 'other' }) == 1
    end)
  end
  vim.cmd('checkhealth fx_lsp')
  drive.result.report = drive.wait('a report', function()
    local text = drive.text(0)
    return text:find('fx%-lsp: conflicts') and text
  end)
end)
