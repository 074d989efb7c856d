--- A column at the right edge with the share of each line in the cost of its function: the measured time, else an
--- estimate from the graphs.

local compat = require('fx_lsp.compat')

local M = {}

local space = vim.api.nvim_create_namespace('fx_lsp_heat')
local BARS = { '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█' }
local LINKS = { 'Comment', 'DiagnosticHint', 'DiagnosticInfo', 'DiagnosticWarn', 'DiagnosticError' }
--- the buffers that show the column
local on = {}
--- buffer -> the number of its last request
local asked = {}

for level, link in ipairs(LINKS) do
  vim.api.nvim_set_hl(0, 'FxLspHeat' .. level, { default = true, link = link })
end

--- The cell of a line: its share as a bar and a number, in the color of its level.
local function cell(share)
  local bar = BARS[math.max(1, math.floor(share * #BARS + 0.5))]
  local level = math.max(1, math.ceil(share * #LINKS))
  return { { ('%3d%% %s'):format(math.floor(100 * share + 0.5), bar), 'FxLspHeat' .. level } }
end

local function draw(buf, targets)
  vim.api.nvim_buf_clear_namespace(buf, space, 0, -1)
  local last = vim.api.nvim_buf_line_count(buf)
  for _, target in ipairs(targets) do
    for _, line in ipairs(target.lines) do
      if line.line < last and line.share >= 0.005 then
        local shown = { virt_text = cell(line.share), virt_text_pos = 'right_align', hl_mode = 'combine' }
        vim.api.nvim_buf_set_extmark(buf, space, line.line, 0, shown)
      end
    end
  end
end

--- Draws the column of a buffer that shows it, with what the server has now.
function M.refresh(buf)
  local client = on[buf] and vim.api.nvim_buf_is_loaded(buf) and require('fx_lsp').client(buf)
  if not client then
    return
  end
  asked[buf] = (asked[buf] or 0) + 1
  local mine = asked[buf]
  local tick = vim.api.nvim_buf_get_changedtick(buf)
  compat.request(client, 'fxLsp/lineCosts', { uri = vim.uri_from_bufnr(buf) }, function(err, targets)
    local loaded = mine == asked[buf] and vim.api.nvim_buf_is_loaded(buf)
    if loaded and tick == vim.api.nvim_buf_get_changedtick(buf) and on[buf] and not err then
      draw(buf, targets and targets ~= vim.NIL and targets or {})
    end
  end, buf)
end

--- Shows or hides the column of a buffer.
function M.show(buf, shown)
  on[buf] = shown or nil
  if shown then
    M.refresh(buf)
  else
    vim.api.nvim_buf_clear_namespace(buf, space, 0, -1)
  end
end

function M.toggle(buf)
  M.show(buf, not on[buf])
end

return M
