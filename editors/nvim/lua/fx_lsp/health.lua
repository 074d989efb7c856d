--- `:checkhealth fx_lsp`: what is set up, what is not, and what to do about it.

local compat = require('fx_lsp.compat')

local M = {}

--- The version of this plugin, which is that of the server.
M.VERSION = '0.1.0'

--- How long a command of fx-lsp may take, in milliseconds.
local PATIENCE = 60000

local function reporter(name)
  local api = vim.health or require('health')
  return api[name] or api['report_' .. name]
end

local start, ok, info, warn, err =
  reporter('start'), reporter('ok'), reporter('info'), reporter('warn'), reporter('error')

--- What a command prints, and its exit code; nil and what went wrong if it does not start, or does not end.
local function output(command, options)
  local lines, errors
  local id = vim.fn.jobstart(command, {
    cwd = options.cwd,
    env = options.env,
    stdout_buffered = true,
    stderr_buffered = true,
    on_stdout = function(_, data)
      lines = data
    end,
    on_stderr = function(_, data)
      errors = data
    end,
  })
  local code = id > 0 and vim.fn.jobwait({ id }, PATIENCE)[1] or id
  if code == -1 and id > 0 then
    vim.fn.jobstop(id)
    return nil, ('took longer than %d s'):format(PATIENCE / 1000)
  end
  vim.wait(1000, function()
    return lines and errors
  end, 10)
  local text = table.concat(lines or {}, '\n')
  return text ~= '' and text or nil, vim.trim(table.concat(errors or {}, '\n'))
end

local function check_neovim()
  start('fx-lsp: Neovim')
  local number = vim.version()
  ok(('Neovim %d.%d.%d'):format(number.major, number.minor, number.patch))
  if not vim.lsp.enable then
    info("Neovim before 0.11 has no vim.lsp.enable(): call require('fx_lsp').setup() in your init.lua")
  end
  if not vim.lsp.inlay_hint then
    info('Neovim before 0.10 has no inlay hints: use hovers for shapes, or install a newer Neovim')
  end
end

--- The command line of a configuration without `serve` and what follows; nil if a function starts the server.
local function program(config)
  if type(config.cmd) ~= 'table' then
    return nil
  end
  local words = {}
  for _, word in ipairs(config.cmd) do
    if word == 'serve' then
      break
    end
    table.insert(words, word)
  end
  return words
end

--- Whether the command of a configuration works.
local function check_command(config)
  start('fx-lsp: command')
  local words = program(config)
  if not words then
    info('A function starts the server, which is not checked: run `fx-lsp doctor` in a terminal')
    return false
  end
  if vim.fn.executable(words[1]) == 0 then
    err(words[1] .. ' is not a command', {
      'install it with `uv tool install .` in a checkout of fx-lsp, and start Neovim with its folder on the PATH',
      "or set its path: vim.lsp.config('fx_lsp', { cmd = { '/path/to/fx-lsp', 'serve' } }), or the same in setup()",
    })
    return false
  end
  local text, problem = output(vim.list_extend(vim.list_slice(words), { '--version' }), { env = config.cmd_env })
  local version = text and text:match('^fx%-lsp (%S+)')
  if not version then
    err(('`%s --version` prints no version: %s'):format(table.concat(words, ' '), text or problem), {
      'run it in a terminal; install it again with `uv tool install --reinstall .` in a checkout of fx-lsp',
    })
    return false
  end
  if version == M.VERSION then
    ok(('fx-lsp %s: %s'):format(version, vim.fn.exepath(words[1])))
  else
    warn(('fx-lsp is %s, and this plugin is %s'):format(version, M.VERSION), {
      'update the older one: `uv tool install --reinstall .` in a checkout of fx-lsp, or the plugin',
    })
  end
  return true
end

local function check_status(client)
  local text, status = require('fx_lsp').status(client)
  if not status then
    warn(('Client %d has sent no status yet'):format(client.id), {
      'wait a moment; if this stays, read ' .. vim.lsp.get_log_path(),
    })
  elseif status.health == 'ok' then
    ok('Status: ' .. text)
  else
    local report = status.health == 'error' and err or warn
    report('Status: ' .. text, { ':FxRestart traces everything again', 'the log is ' .. vim.lsp.get_log_path() })
  end
end

local function check_clients(clients)
  start('fx-lsp: client')
  local files = compat.files()
  if #clients == 0 then
    local advice = vim.lsp.enable and "call vim.lsp.enable('fx_lsp') in your init.lua"
      or "call require('fx_lsp').setup() in your init.lua"
    warn('No client runs' .. (#files == 0 and ': no Python file is open' or ''), {
      #files == 0 and 'open a Python file' or 'the server has ended, or was not started: ' .. advice,
      'the log is ' .. vim.lsp.get_log_path(),
    })
  end
  for _, client in ipairs(clients) do
    local attached = vim.tbl_filter(function(buf)
      return vim.lsp.buf_is_attached(buf, client.id)
    end, files)
    local place = client.config.root_dir or 'no folder'
    ok(('Client %d is attached to %d of %d Python files, in %s'):format(client.id, #attached, #files, place))
    check_status(client)
  end
end

--- Clients that do the work of another: of the same name in the same folder, or of another name.
local function check_conflicts(clients)
  start('fx-lsp: conflicts')
  local folders, conflict = {}, false
  for _, client in ipairs(clients) do
    local folder = client.config.root_dir or ''
    if folders[folder] then
      conflict = true
      warn(('Clients %d and %d are both fx_lsp, in the same folder'):format(folders[folder], client.id), {
        "keep one of vim.lsp.enable('fx_lsp'), require('fx_lsp').setup() and vim.lsp.start() in your init.lua",
      })
    end
    folders[folder] = client.id
  end
  for _, client in ipairs(compat.clients()) do
    local words = program(client.config) or {}
    local last = vim.fn.fnamemodify(words[#words] or '', ':t')
    if client.name ~= 'fx_lsp' and (last == 'fx-lsp' or last == 'fx_lsp') then
      conflict = true
      warn(('Client %d runs fx-lsp too, as %s'):format(client.id, client.name), {
        'remove it from your init.lua: the :Fx commands use the client with the name fx_lsp',
      })
    end
  end
  if not conflict then
    ok('No other client runs fx-lsp')
  end
end

--- The user's answer about the innermost folder around a folder: `trusted`, `never`, or nil.
local function answer(words, folder, env)
  local answers = {}
  for line in (output(vim.list_extend(vim.list_slice(words), { 'trust' }), { env = env }) or ''):gmatch('[^\n]+') do
    local state, path = line:match('^(%l+) +(.+)$')
    answers[path or ''] = state
  end
  local path = (vim.uv or vim.loop).fs_realpath(folder) or folder
  while true do
    local parent = vim.fn.fnamemodify(path, ':h')
    if answers[path] or parent == path then
      return answers[path]
    end
    path = parent
  end
end

--- Whether code of a folder may run.
local function check_trust(config, folder)
  start('fx-lsp: trust')
  local setting = (config.init_options or {}).trust
  if vim.tbl_contains(config.cmd, '--trust') or setting == 'always' then
    ok('Your configuration trusts every folder')
    return true
  end
  if setting == 'never' then
    warn('Your configuration trusts no folder', { "remove `trust = 'never'` from init_options to be asked" })
    return false
  end
  local state = answer(program(config), folder, config.cmd_env)
  if state == 'trusted' then
    ok(folder .. ' is trusted')
    return true
  end
  warn(folder .. (state == 'never' and ' is never trusted' or ' is not trusted') .. ': nothing is traced', {
    ':FxTrust asks again, in a Python file of the folder',
  })
  return false
end

--- The interpreter that traces a folder. Only for a folder that is trusted: the interpreter may be in it.
local function check_interpreter(config, folder)
  local command = vim.list_extend(program(config), { 'doctor', '--json', '--no-hosts' })
  local interpreter = (config.init_options or {}).interpreter
  if interpreter then
    vim.list_extend(command, { '--python', interpreter })
  end
  local text, problem = output(command, { cwd = folder, env = config.cmd_env })
  local decoded, checks = pcall(vim.fn.json_decode, text or '')
  if not decoded or type(checks) ~= 'table' then
    err('`fx-lsp doctor` gave no result: ' .. (text or problem), { 'run `fx-lsp doctor` in a terminal, in ' .. folder })
    return
  end
  for _, check in ipairs(checks) do
    if check.about == 'interpreter' or check.about == 'tracing' then
      if check.state == 'right' then
        ok(check.text)
      else
        local advice = check.mend ~= '' and check.mend or 'run `fx-lsp doctor` in a terminal, in ' .. folder
        err(check.text, { advice })
      end
    end
  end
end

function M.check()
  check_neovim()
  local plugin = require('fx_lsp')
  local clients = plugin.clients()
  local config = clients[1] and clients[1].config or plugin.configured()
  local works = check_command(config)
  check_clients(clients)
  check_conflicts(clients)
  if not works then
    return
  end
  local folder = config.root_dir
  if type(folder) ~= 'string' then
    folder = vim.fn.getcwd()
  end
  local trusted = check_trust(config, folder)
  start('fx-lsp: interpreter')
  if trusted then
    check_interpreter(config, folder)
  else
    info('Not checked, because the folder is not trusted: answer the question first')
  end
end

return M
