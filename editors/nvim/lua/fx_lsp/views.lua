--- Buffers named `fx-lsp:///path/to/model.py/Block.forward.py`: graphs that the server renders.

local compat = require('fx_lsp.compat')

local M = {}

M.SCHEME = 'fx-lsp:'

--- buffer name -> id of the client that showed it
local owners = {}
--- buffer -> number of the last request for its text
local asked = {}

--- The buffer name of a URI. Neovim takes names for paths unless `//` follows the scheme.
local function name_of(uri)
  return (uri:gsub('^fx%-lsp:/([^/])', 'fx-lsp:///%1'))
end

local function find(name)
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(buf) == name then
      return buf
    end
  end
end

local function owner(name)
  return owners[name] and vim.lsp.get_client_by_id(owners[name])
end

local function fill(buf, lines)
  if not vim.deep_equal(lines, vim.api.nvim_buf_get_lines(buf, 0, -1, false)) then
    local places = {}
    for _, win in ipairs(vim.fn.win_findbuf(buf)) do
      places[win] = vim.api.nvim_win_call(win, vim.fn.winsaveview)
    end
    -- Changing a read-only buffer would warn, and wait a second.
    vim.bo[buf].readonly = false
    vim.bo[buf].modifiable = true
    vim.api.nvim_buf_set_lines(buf, 0, -1, false, lines)
    for win, place in pairs(places) do
      vim.api.nvim_win_call(win, function()
        vim.fn.winrestview(place)
      end)
    end
  end
  vim.bo[buf].modified = false
  vim.bo[buf].modifiable = false
  vim.bo[buf].readonly = true
end

--- Fills a view's buffer with what the server has for it, once it has it.
function M.load(buf)
  local name = vim.api.nvim_buf_get_name(buf)
  local client = owner(name) or compat.clients('fx_lsp')[1]
  if not client then
    return fill(buf, { '# fx-lsp is not running: open the Python file first.' })
  end
  owners[name] = client.id
  asked[buf] = (asked[buf] or 0) + 1
  local mine = asked[buf]
  compat.request(client, 'fxLsp/document', { uri = name }, function(err, result)
    if asked[buf] == mine and vim.api.nvim_buf_is_loaded(buf) then
      local text = err and '# ' .. err.message or result and result.text or '# The server has no such graph.'
      fill(buf, vim.split(text:gsub('\n$', ''), '\n', { plain = true }))
      -- The server keeps a graph up to date as long as it is open.
      vim.lsp.buf_attach_client(buf, client.id)
      require('fx_lsp').refresh_lenses(buf)
    end
  end, buf)
end

--- What the text of a view is written in.
local function language(name)
  local form = name:match('%.(%l+)[^./]*%.txt%f[?%z]')
  if form then
    return ({ ttir = 'mlir', ttgir = 'mlir', llir = 'llvm', resources = 'text', benchmark = 'text' })[form] or 'asm'
  end
  return name:find('%.diff%f[?%z]') and 'diff' or 'python'
end

--- Whether a view is one with lenses: a file of kernels.
function M.has_lenses(buf)
  return vim.api.nvim_buf_get_name(buf):find('%.triton%.py%f[?%z]') ~= nil
end

--- `BufReadCmd` of `fx-lsp:` buffers.
function M.read(buf)
  vim.bo[buf].buftype = 'nofile'
  vim.bo[buf].swapfile = false
  vim.bo[buf].undolevels = -1
  vim.bo[buf].bufhidden = 'unload'
  fill(buf, { '# tracing …' })
  vim.bo[buf].filetype = language(vim.api.nvim_buf_get_name(buf))
  M.load(buf)
end

--- Loads the views again whose server is gone, or was not there yet.
function M.load_waiting()
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    local name = vim.api.nvim_buf_get_name(buf)
    if vim.startswith(name, M.SCHEME) and vim.api.nvim_buf_is_loaded(buf) and not owner(name) then
      M.load(buf)
    end
  end
end

--- The same target's graph of another stage, in this window.
function M.go_to_stage(buf, stage)
  local name = vim.api.nvim_buf_get_name(buf)
  local other = name:gsub('?.*$', ''):gsub('%.[^./]+%.%a+$', '.' .. stage:gsub('%%', '%%%%') .. '.py')
  owners[other] = owners[name]
  vim.cmd('edit ' .. vim.fn.fnameescape(other))
end

--- `workspace/textDocumentContent/refresh`
function M.refresh(_, params)
  local buf = find(name_of(params.uri))
  if buf and vim.api.nvim_buf_is_loaded(buf) then
    M.load(buf)
  end
  return vim.NIL
end

--- `window/showDocument`: a graph opens in the window that has it already, else in a split. The cursor goes there,
--- unless its user has begun to type something else by then.
function M.show_document(err, params, ctx, config)
  if not vim.startswith(params.uri, M.SCHEME) then
    local default = vim.lsp.handlers['window/showDocument']
    if default then
      return default(err, params, ctx, config)
    end
    local start = { line = 0, character = 0 }
    local range = params.selection or { start = start, ['end'] = start }
    local encoding = vim.lsp.get_client_by_id(ctx.client_id).offset_encoding
    return { success = vim.lsp.util.jump_to_location({ uri = params.uri, range = range }, encoding) or false }
  end
  local name = name_of(params.uri)
  owners[name] = ctx.client_id
  local before, buf = vim.api.nvim_get_current_win(), find(name)
  local typing = vim.api.nvim_get_mode().mode:find('^[iR]') ~= nil
  local shown = buf and vim.fn.bufwinid(buf) or -1
  if shown ~= -1 then
    vim.api.nvim_set_current_win(shown)
  else
    local beside = vim.api.nvim_win_get_width(0) >= 160 and 'belowright vertical ' or 'belowright '
    vim.cmd(beside .. 'split ' .. vim.fn.fnameescape(name))
  end
  if params.takeFocus == false or typing then
    vim.api.nvim_set_current_win(before)
  end
  return { success = true }
end

return M
