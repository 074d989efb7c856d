-- What the scenarios share: waiting, reading what is on the screen, and writing down what was found.
local M = { result = {} }

--- Nanoseconds, without those in which this process waited for a processor, where the system (Linux) says so.
local function clock()
  local waited = 0
  local file = io.open('/proc/self/schedstat')
  if file then
    waited = select(2, file:read('*n', '*n')) or 0
    file:close()
  end
  return vim.loop.hrtime() - waited
end

local started = clock()
local last, gap = started, 0
local timer = vim.loop.new_timer()

local function tick()
  local now = clock()
  gap = math.max(gap, now - last)
  last = now
end

local function run(scenario)
  timer:start(0, 20, tick)
  local ok, err = xpcall(scenario, debug.traceback)
  tick()
  timer:stop()
  M.result.error = not ok and err or nil
  M.result.gap = gap / 1e9
  M.result.seconds = (clock() - started) / 1e9
  M.result.messages = vim.fn.execute('messages')
  vim.fn.writefile({ vim.fn.json_encode(M.result) }, vim.env.FX_RESULT)
  vim.cmd('qa!')
end

--- Runs a scenario in an editor that has started, and writes its result, or its error, to $FX_RESULT.
function M.run(scenario)
  vim.api.nvim_create_autocmd('VimEnter', {
    callback = vim.schedule_wrap(function()
      run(scenario)
    end),
  })
end

--- Waits until `condition` returns something true and returns it.
function M.wait(what, condition, seconds)
  local found
  local ok = vim.wait((seconds or 300) * 1000, function()
    found = condition()
    return found
  end, 50)
  if not ok then
    error(('waited for %s; lenses: %s; status: %s; buffer: %s'):format(
      what,
      vim.inspect(M.lenses()),
      vim.inspect({ require('fx_lsp').status() }),
      table.concat(vim.api.nvim_buf_get_lines(0, 0, 30, false), '\n')
    ))
  end
  return found
end

--- The buffer of the Python file of a scenario.
function M.open(path)
  vim.cmd('edit ' .. vim.fn.fnameescape(path))
  M.source = vim.api.nvim_get_current_buf()
end

--- The titles shown on each line of the source, as the user sees them: `{ ['12'] = 'a | b' }`. Not those of targets
--- that are traced for the first time.
function M.lenses()
  local shown = {}
  for name, space in pairs(vim.api.nvim_get_namespaces()) do
    if name:find('codelens') then
      for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(M.source, space, 0, -1, { details = true })) do
        local text = ''
        for _, chunk in ipairs(mark[4].virt_text or {}) do
          text = text .. chunk[1]
        end
        shown[tostring(mark[2] + 1)] = text ~= 'tracing…' and text or nil
      end
    end
  end
  return shown
end

--- The titles over the line that `text` is on.
function M.lens(text)
  return M.lenses()[tostring(M.line(text))] or ''
end

--- The number of the first line of the source that contains `text`, and the text's column.
function M.line(text)
  for number, line in ipairs(vim.api.nvim_buf_get_lines(M.source, 0, -1, false)) do
    local column = line:find(text, 1, true)
    if column then
      return number, column - 1
    end
  end
  error('no line has ' .. text)
end

--- Puts the cursor on `inner` within the first line of the source that contains `text`.
function M.go(text, inner)
  local window = vim.fn.bufwinid(M.source)
  local line, column = M.line(text)
  vim.api.nvim_set_current_win(window)
  vim.api.nvim_win_set_cursor(window, { line, column + (inner and text:find(inner, 1, true) - 1 or 0) })
end

--- What the hover at a place shows.
function M.hover(text, inner)
  M.go(text, inner)
  vim.lsp.buf.hover()
  local window = M.wait('a hover on ' .. text, function()
    for _, win in ipairs(vim.api.nvim_list_wins()) do
      if vim.api.nvim_win_get_config(win).relative ~= '' then
        return win
      end
    end
  end)
  local lines = vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(window), 0, -1, false)
  vim.api.nvim_win_close(window, true)
  return table.concat(lines, '\n')
end

--- Clicks the lens with this title over the line that `text` is on, and in its menu, if it opens one, `choice`.
function M.click(text, title, choice)
  M.go(text)
  vim.ui.select = function(items, options, choose)
    for _, item in ipairs(items) do
      local shown = options.format_item(item)
      if shown == title or shown == choice then
        return choose(item)
      end
    end
    error('no lens ' .. title)
  end
  vim.lsp.codelens.run()
end

--- Waits for a graph whose text has `wanted` in the current window, and describes it.
function M.graph(wanted)
  M.wait('a graph with ' .. wanted, function()
    return vim.api.nvim_buf_get_name(0):find('^fx%-lsp:') and M.text(0):find(wanted, 1, true)
  end)
  return {
    name = vim.api.nvim_buf_get_name(0),
    text = M.text(0),
    filetype = vim.bo.filetype,
    modifiable = vim.bo.modifiable,
    windows = #vim.api.nvim_list_wins(),
  }
end

function M.text(buf)
  return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, false), '\n')
end

--- The buffer whose name matches a pattern, or nil.
function M.view(pattern)
  for _, buf in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_is_loaded(buf) and vim.api.nvim_buf_get_name(buf):find(pattern) then
      return buf
    end
  end
end

--- Wait until the buffer whose name matches a pattern holds a text; returns all of its text.
function M.shown(pattern, text)
  return M.wait(text, function()
    local buf = M.view(pattern)
    local found = buf and M.text(buf)
    return found and found:find(text, 1, true) and found
  end)
end

--- Replaces a line of the source without saving it.
function M.replace(old, new)
  local number = M.line(old)
  local line = vim.api.nvim_buf_get_lines(M.source, number - 1, number, false)[1]
  local from, to = line:find(old, 1, true)
  vim.api.nvim_buf_set_lines(M.source, number - 1, number, false, { line:sub(1, from - 1) .. new .. line:sub(to + 1) })
end

--- `{ message, severity, text }` of each problem; `text` is the source under it.
function M.problems()
  local found = {}
  for _, d in ipairs(vim.diagnostic.get(M.source)) do
    local lines = vim.api.nvim_buf_get_lines(M.source, d.lnum, d.end_lnum + 1, false)
    local text = #lines == 1 and lines[1]:sub(d.col + 1, d.end_col) or table.concat(lines, '\n')
    table.insert(found, { message = d.message, severity = vim.diagnostic.severity[d.severity], text = text })
  end
  return found
end

--- The inlay hints as the source with them written in, line by line where there are any.
function M.hints()
  local lines = {}
  local hints = vim.lsp.inlay_hint.get({ bufnr = M.source })
  table.sort(hints, function(a, b)
    return a.inlay_hint.position.character > b.inlay_hint.position.character
  end)
  for _, item in ipairs(hints) do
    local place = item.inlay_hint.position
    local key = tostring(place.line + 1)
    local line = lines[key] or vim.api.nvim_buf_get_lines(M.source, place.line, place.line + 1, false)[1]
    local label = (item.inlay_hint.paddingLeft and ' ' or '') .. item.inlay_hint.label
    lines[key] = line:sub(1, place.character) .. label .. line:sub(place.character + 1)
  end
  return lines
end

return M
