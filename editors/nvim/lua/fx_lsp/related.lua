--- Highlights what belongs to the line at the cursor: in the source, its graphs, its kernels, and what they are
--- compiled to.

local compat = require('fx_lsp.compat')
local views = require('fx_lsp.views')

local M = {}

local space = vim.api.nvim_create_namespace('fx_lsp_related')
local asked = 0
--- the buffers that have highlighted lines
local marked = {}

vim.api.nvim_set_hl(0, 'FxLspRelated', { default = true, link = 'Visual' })

local function is_view(buf)
  return vim.startswith(vim.api.nvim_buf_get_name(buf), views.SCHEME)
end

--- The buffers of the windows of this tab page, with a window of each.
local function visible()
  local found = {}
  for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
    found[vim.api.nvim_win_get_buf(win)] = win
  end
  return found
end

local function clear()
  for buf in pairs(marked) do
    if vim.api.nvim_buf_is_valid(buf) then
      vim.api.nvim_buf_clear_namespace(buf, space, 0, -1)
    end
  end
  marked = {}
end

local function show(buf, win, ranges)
  local first, seen
  local top, bottom = unpack(vim.api.nvim_win_call(win, function()
    return { vim.fn.line('w0'), vim.fn.line('w$') }
  end))
  local last = vim.api.nvim_buf_line_count(buf)
  for _, range in ipairs(ranges) do
    for line = range.start.line, math.min(range['end'].line, last - 1) do
      vim.api.nvim_buf_set_extmark(buf, space, line, 0, { line_hl_group = 'FxLspRelated' })
      marked[buf] = true
      first = first or line + 1
      seen = seen or (line + 1 >= top and line + 1 <= bottom)
    end
  end
  if first and not seen and is_view(buf) and win ~= vim.api.nvim_get_current_win() then
    vim.api.nvim_win_call(win, function()
      vim.fn.winrestview({ lnum = first, col = 0, topline = math.max(first - 3, 1) })
    end)
  end
end

--- Highlights what belongs to the cursor's line in `buf`, the current buffer, where a view is beside it.
function M.follow(buf)
  local shown = visible()
  local beside = vim.tbl_filter(is_view, vim.tbl_keys(shown))
  local client = #beside > 0 and require('fx_lsp').client(buf)
  if not client or vim.tbl_count(shown) < 2 then
    return clear()
  end
  asked = asked + 1
  local mine = asked
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  local place = { uri = params.textDocument.uri, position = params.position }
  compat.request(client, 'fxLsp/related', place, function(err, result)
    if err or mine ~= asked then
      return
    end
    local found = {}
    for _, item in ipairs(result and result ~= vim.NIL and result or {}) do
      found[(item.uri:gsub('^fx%-lsp:/([^/])', 'fx-lsp:///%1'))] = item.ranges
    end
    clear()
    for other, win in pairs(visible()) do
      show(other, win, found[vim.uri_from_bufnr(other)] or {})
    end
  end, buf)
end

return M
