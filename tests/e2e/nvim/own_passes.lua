-- Runs passes on targets, one after the other, and keeps what the editor shows of each.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result
local runs = vim.fn.json_decode(vim.env.FX_RUNS)

local function text_of(pattern)
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    local name = vim.api.nvim_buf_get_name(buf)
    if vim.api.nvim_buf_is_loaded(buf) and name:find(pattern, 1, true) then
      return drive.text(buf), buf
    end
  end
end

drive.run(function()
  drive.open(vim.env.FX_FILE)
  drive.wait('a lens', function()
    return drive.lens('def scaled'):find('^%d')
  end)
  local home, model = drive.source, vim.uri_from_bufnr(drive.source)
  result.views, result.problems = {}, {}
  for _, run in ipairs(runs) do
    vim.api.nvim_set_current_buf(home)
    vim.cmd('edit ' .. vim.fn.fnameescape(run.file))
    local buf = vim.api.nvim_get_current_buf()
    local client = drive.wait('the server', function()
      return require('fx_lsp').client(buf)
    end)
    local arguments = { vim.uri_from_bufnr(buf), run.pass, vim.uri_to_fname(model), run.target }
    client:request('workspace/executeCommand', { command = 'fxLsp.runPass', arguments = arguments }, nil, buf)
    result.views[run.pass] = drive.wait(run.pass, function()
      local text = text_of(run.target .. '.run.py?pass=' .. run.file .. '::' .. run.pass)
      return text and text:find('# stage', 1, true) and text
    end)
    if run.fails then
      result.problems[run.pass] = drive.wait('the error of ' .. run.pass, function()
        local found = vim.diagnostic.get(buf, { severity = vim.diagnostic.severity.ERROR })
        return #found > 0 and { line = found[1].lnum + 1, message = found[1].message }
      end)
    end
    if run.marks then
      result.problems[run.pass] = drive.wait('the marks of ' .. run.pass, function()
        local found = vim.diagnostic.get(home, { severity = vim.diagnostic.severity.HINT })
        return #found > 0 and { line = found[1].lnum + 1, message = found[1].message }
      end)
    end
    local _, view = text_of(run.target .. '.run.py?pass=' .. run.file .. '::' .. run.pass)
    vim.cmd('bwipeout! ' .. view)
  end
end)
