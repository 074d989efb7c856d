--- Benchmarks: what `:FxBench` may be told, and how it asks the server.

local compat = require('fx_lsp.compat')

local M = {}

--- How long completion waits for the names of the hosts.
local WAIT_MS = 500
local VARIANTS = {
  'eager',
  'symbolic_trace',
  'torchscript',
  'compile',
  'compile reduce-overhead',
  'compile max-autotune',
  'compile cudagraphs',
  'kernels',
  'inductor-kernels',
}
local VALUES = {
  what = { 'forward', 'backward', 'both' },
  variants = VARIANTS,
  profile = { 'true' },
}
local CHOICES = {
  'fuse=no',
  'matmul=always',
  'matmul=never',
  'backward=balance',
  'backward=save',
  'precision=tf32',
  'precision=tf32x3',
  'tma=no',
  'deterministic=yes',
  'sizes=any',
  'sizes=traced',
}

--- The words of a command: a space within brackets or quotes, or behind a comma, parts none.
---@param text string
---@return string[]
function M.words(text)
  local words, word, depth, quote = {}, '', 0, nil
  for sign in text:gmatch('.') do
    if sign == quote or (not quote and sign:find('["\']')) then
      quote = not quote and sign or nil
    else
      depth = depth + (sign:find('[%[(]') and 1 or sign:find('[%])]') and -1 or 0)
      local parts = not quote and depth == 0 and sign:find('%s') and not word:find(',%s*$')
      if parts and word ~= '' then
        table.insert(words, word)
      end
      word = parts and '' or word .. sign
    end
  end
  return word ~= '' and vim.list_extend(words, { word }) or words
end

local function has_choice(name)
  return vim.tbl_contains(
    vim.tbl_map(function(choice)
      return choice:match('^%w+')
    end, CHOICES),
    name
  )
end

--- What the server is asked for with these words: names of hosts, and `option=value`. Nil and a sentence where one is
--- not understood.
---@param words string[]
---@return table|nil, string|nil
function M.options(words)
  local options, choices = {}, {}
  for _, word in ipairs(words) do
    local name, value = word:match('^(%w+)=(.*)$')
    if not name then
      options.hosts = vim.list_extend(options.hosts or {}, { word })
    elseif name == 'what' or name == 'variants' then
      options[name] = vim.tbl_map(vim.trim, vim.split(value, ',', { plain = true }))
    elseif name == 'inputs' or name == 'sweep' then
      options[name] = value
    elseif name == 'profile' then
      options.profile = value == 'true' or value == 'yes'
    elseif has_choice(name) then
      table.insert(choices, word)
    else
      return nil, ('there is no option %s; there are what, variants, inputs, sweep, profile, %s'):format(
        name,
        table.concat(CHOICES, ', ')
      )
    end
  end
  options.work = #choices > 0 and table.concat({ 'triton', unpack(choices) }, '&') or nil
  return options
end

--- The names of the user's hosts, as far as the server says them at once.
local function hosts(client)
  local params = { command = 'fxLsp.hosts', arguments = {} }
  local answer = client and compat.request_sync(client, 'workspace/executeCommand', params, WAIT_MS)
  return vim.tbl_map(function(host)
    return host.name
  end, answer and answer.result and answer.result.hosts or {})
end

--- What completes a word of `:FxBench`.
---@param lead string
---@return string[]
function M.complete(lead, client)
  local name, before, last = lead:match('^(%w+)=(.-)([^,]*)$')
  if name and VALUES[name] then
    local found = vim.tbl_filter(function(value)
      return vim.startswith(value, last)
    end, VALUES[name])
    return vim.tbl_map(function(value)
      return name .. '=' .. before .. value:gsub(' ', '\\ ')
    end, found)
  end
  local words = vim.list_extend({ 'what=', 'variants=', 'inputs=', 'sweep=', 'profile=true' }, CHOICES)
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, vim.list_extend(hosts(client), words))
end

return M
