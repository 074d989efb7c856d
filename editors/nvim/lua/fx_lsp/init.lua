--- The client side of fx-lsp: how to start the server, `:Fx…` commands, and the status.
--- Works on Neovim 0.7 (`setup`) to 0.11 and later (`setup`, or `vim.lsp.enable('fx_lsp')`).

local bench = require('fx_lsp.bench')
local compat = require('fx_lsp.compat')
local heat = require('fx_lsp.heat')
local hints = require('fx_lsp.hints')
local views = require('fx_lsp.views')

local M = {}

local NAME = 'fx_lsp'
local ROOT_MARKERS = { 'pyproject.toml', 'setup.py', 'setup.cfg', '.git' }

--- client id -> the last `fxLsp/status`
local statuses = {}
--- What `setup` was given.
local settings = {}

local function warn(message)
  vim.notify('fx-lsp: ' .. message, vim.log.levels.WARN)
end

local function is_view(buf)
  return vim.startswith(vim.api.nvim_buf_get_name(buf), views.SCHEME)
end

local function current(buf)
  return (buf == nil or buf == 0) and vim.api.nvim_get_current_buf() or buf
end

local function execute(client, command, arguments, buf)
  compat.request(client, 'workspace/executeCommand', { command = command, arguments = arguments }, function(err)
    if err then
      warn(err.message)
    end
    if vim.api.nvim_buf_is_loaded(buf) then
      M.refresh_lenses(buf)
    end
  end, buf)
end

--- A lens that was picked. The server answers it with `window/showDocument`.
local function run_lens(command, ctx)
  local client = vim.lsp.get_client_by_id(ctx.client_id) or M.client(ctx.bufnr)
  execute(client, command.command, command.arguments, ctx.bufnr)
end

--- The lens that opens a menu.
local function run_menu(command, ctx)
  local client = vim.lsp.get_client_by_id(ctx.client_id) or M.client(ctx.bufnr)
  local params = { command = 'fxLsp.commands', arguments = command.arguments }
  compat.request(client, 'workspace/executeCommand', params, function(err, offered)
    if err then
      return warn(err.message)
    end
    local format = function(item)
      return item.title
    end
    local options = { prompt = command.arguments[2], kind = 'fx-lsp', format_item = format }
    vim.ui.select(offered or {}, options, function(item)
      if item then
        execute(client, item.command, item.arguments, ctx.bufnr)
      end
    end)
  end, ctx.bufnr)
end

local handlers = vim.tbl_extend('error', hints.handlers, {
  ['window/showDocument'] = views.show_document,
  ['workspace/textDocumentContent/refresh'] = views.refresh,
  ['workspace/codeLens/refresh'] = function(_, _, ctx)
    for _, buf in ipairs(vim.api.nvim_list_bufs()) do
      if vim.api.nvim_buf_is_loaded(buf) and vim.lsp.buf_is_attached(buf, ctx.client_id) then
        M.refresh_lenses(buf)
        heat.refresh(buf)
      end
    end
    return vim.NIL
  end,
  ['fxLsp/status'] = function(_, status, ctx)
    local new = statuses[ctx.client_id] == nil
    statuses[ctx.client_id] = status
    if new then
      views.load_waiting()
    end
    vim.api.nvim_exec_autocmds('User', { pattern = 'FxLspStatus', modeline = false })
    vim.cmd('redrawstatus!')
  end,
})

--- The configuration of the client, for `vim.lsp.config`, `vim.lsp.start` or `vim.lsp.start_client`.
---@param overrides table|nil
---@return table
function M.config(overrides)
  local capabilities = {
    window = { showDocument = { support = true } },
    workspace = { codeLens = { refreshSupport = true } },
  }
  if vim.fn.has('nvim-0.11') == 0 then
    -- Given capabilities replace the default ones there, instead of adding to them.
    capabilities = vim.tbl_deep_extend('force', vim.lsp.protocol.make_client_capabilities(), capabilities)
  end
  return vim.tbl_deep_extend('force', {
    name = NAME,
    cmd = { 'fx-lsp', 'serve' },
    filetypes = { 'python' },
    root_markers = ROOT_MARKERS,
    init_options = { virtualDocuments = true },
    capabilities = capabilities,
    handlers = handlers,
    commands = {
      ['fxLsp.showStage'] = run_lens,
      ['fxLsp.showFailure'] = run_lens,
      ['fxLsp.menu'] = run_menu,
      ['fxLsp.runPass'] = run_lens,
      ['fxLsp.bench'] = run_lens,
      ['fxLsp.writeKernel'] = run_lens,
    },
  }, overrides or {})
end

--- The configuration that the next client gets.
---@return table
function M.configured()
  return vim.lsp.enable and vim.lsp.config[NAME] or M.config(settings)
end

--- Starts the server for every Python file. `overrides` are fields of the client's configuration:
--- `cmd`, `init_options = { virtualDocuments = true, interpreter = '…' }`, `on_attach` and so on.
---@param overrides table|nil
function M.setup(overrides)
  settings = overrides or {}
  if vim.lsp.enable then
    vim.lsp.config(NAME, settings)
    vim.lsp.enable(NAME)
    return
  end
  local group = vim.api.nvim_create_augroup('fx_lsp_start', {})
  vim.api.nvim_create_autocmd('FileType', {
    group = group,
    pattern = 'python',
    callback = function(args)
      M.start(args.buf)
    end,
  })
  for _, buf in ipairs(compat.files()) do
    M.start(buf)
  end
end

--- Starts the server for a buffer, or attaches the buffer to the one that runs for the same root.
---@param buf integer|nil
function M.start(buf)
  buf = current(buf)
  if vim.bo[buf].buftype ~= '' or is_view(buf) then
    return
  end
  local config = M.config(settings)
  config.root_dir = config.root_dir or compat.root(vim.api.nvim_buf_get_name(buf), ROOT_MARKERS)
  for _, client in ipairs(M.clients()) do
    if client.config.root_dir == config.root_dir then
      vim.lsp.buf_attach_client(buf, client.id)
      return
    end
  end
  local id = vim.lsp.start_client(config)
  if id then
    vim.lsp.buf_attach_client(buf, id)
  end
end

--- The running clients.
---@return table[]
function M.clients()
  return compat.clients(NAME)
end

--- The client that a buffer is attached to.
---@param buf integer|nil
function M.client(buf)
  buf = current(buf)
  for _, client in ipairs(M.clients()) do
    if vim.lsp.buf_is_attached(buf, client.id) then
      return client
    end
  end
end

--- The server's status for a statusline: '' without a server, `fx-lsp`, or `fx-lsp: tracing …`.
--- The second value is the status itself: `{ health = 'ok', quiescent = false, message = '…' }`.
---@param client table|nil by default that of the current buffer
---@return string, table|nil
function M.status(client)
  client = client or M.client() or M.clients()[1]
  local status = client and statuses[client.id]
  if not status then
    return '', nil
  end
  local text = status.message ~= '' and 'fx-lsp: ' .. status.message or 'fx-lsp'
  return text, status
end

--- The innermost of `known`, functions or passes, around a line (from 0), or nil.
local function around(known, line)
  local best
  for _, item in ipairs(known) do
    local first, last = item.range.start.line, item.range['end'].line
    if first <= line and line <= last and (not best or first >= best.range.start.line) then
      best = item
    end
  end
  return best
end

--- Calls `run` with the client, the document's URI, the name of the function or pass at the cursor, traced or not yet,
--- and whether it is a pass. The name is `otherwise`, where that is given, if the cursor is in neither.
local function at_cursor(buf, run, otherwise)
  local client = M.client(buf)
  if not client then
    return warn('no server is running for this buffer')
  end
  local line = vim.api.nvim_win_get_cursor(0)[1] - 1
  local uri = vim.uri_from_bufnr(buf)
  compat.request(client, 'fxLsp/functions', { uri = uri }, function(err, known)
    local all = not err and known and known ~= vim.NIL and known or { functions = {}, passes = {} }
    local pass = around(all.passes, line)
    local target = pass or around(all.functions, line)
    local name = target and target.name or otherwise
    if name then
      run(client, uri, name, pass ~= nil)
    else
      local text, status = M.status()
      warn(status and not status.quiescent and text:gsub('^fx%-lsp: ', '') or 'no traced function at the cursor')
    end
  end, buf)
end

--- Opens a stage of the function at the cursor; without `stage` the one that the server thinks best.
--- In a graph it goes to another stage of the same function.
---@param stage string|nil
function M.graph(stage)
  local buf = vim.api.nvim_get_current_buf()
  if is_view(buf) then
    views.go_to_stage(buf, stage or 'forward')
    return
  end
  at_cursor(buf, function(client, uri, name, is_pass)
    if is_pass then
      execute(client, 'fxLsp.runPass', { uri, name }, buf)
    else
      execute(client, 'fxLsp.showStage', { uri, name, stage }, buf)
    end
  end)
end

--- Opens the Triton kernels of the function at the cursor, or what they are compiled to: `ttir`, `ttgir`, `llir`,
--- `ptx`, `sass`, `amdgcn`, `resources`, for `chip` (`cuda:90`). In any of these, goes to another of the same function.
--- `choices` are how the kernels are made: `{ 'precision=tf32', 'fuse=no' }`.
---@param form string|nil
---@param chip string|nil
---@param choices string[]|nil
function M.kernel(form, chip, choices)
  local buf = vim.api.nvim_get_current_buf()
  local work = form and chip and 'lowered&target=' .. chip or ''
  if choices and #choices > 0 then
    work = table.concat({ work ~= '' and work or 'triton', unpack(choices) }, '&')
  end
  local function show(client, uri, name)
    execute(client, 'fxLsp.showStage', { uri, name, form or 'triton', work }, buf)
  end
  if is_view(buf) then
    local client = M.client(buf)
    return client and show(client, vim.uri_from_bufnr(buf), '')
  end
  at_cursor(buf, show)
end

--- Saves the Triton kernels of the function at the cursor as a file that you may edit, `path` or one beside the source,
--- and opens it. In kernels, or in such a file: of the same function. What was edited in the file stays.
---@param path string|nil
function M.save_kernel(path)
  local buf = vim.api.nvim_get_current_buf()
  local client = M.client(buf)
  local function save(uri, name)
    execute(client, 'fxLsp.writeKernel', { uri, name, path and vim.fn.fnamemodify(path, ':p') }, buf)
  end
  if client and is_view(buf) then
    return save(vim.uri_from_bufnr(buf), '')
  end
  at_cursor(buf, function(_, uri, name)
    save(uri, name)
  end, '') -- a file of kernels says itself whose they are
end

--- Measures the function at the cursor in the background, and opens the page about it, which follows. `text` names
--- hosts of your hosts.toml, and says how: `h200 what=forward sweep=N=1024..65536 inputs="x=f32[N, 64]"`.
---@param text string|nil
function M.bench(text)
  local options, problem = bench.options(bench.words(text or ''))
  if not options then
    return warn(problem)
  end
  M._on_target(function(uri, name, buf, client)
    -- An empty table would be a list in JSON.
    execute(client, 'fxLsp.bench', { uri, name, next(options) and options or nil }, buf)
  end)
end

--- Measures each line of the function at the cursor in eager PyTorch, in the background, and shows the costs of lines.
--- `text` names hosts, as for `bench`.
---@param text string|nil
function M.bench_by_line(text)
  local options, problem = bench.options(bench.words(text or ''))
  if not options then
    return warn(problem)
  end
  at_cursor(vim.api.nvim_get_current_buf(), function(client, uri, name)
    local buf = vim.uri_to_bufnr(uri)
    local asked = vim.tbl_extend('force', options, { byLine = true, show = false })
    execute(client, 'fxLsp.bench', { uri, name, asked }, buf)
    heat.show(buf, true)
  end)
end

--- Stops what is being measured of the function at the cursor, or of that of the page.
function M.stop_bench()
  M._on_target(function(uri, name, buf, client)
    execute(client, 'fxLsp.stopBench', { uri, name }, buf)
  end)
end

--- Calls `run` with the URI and the name of the function at the cursor, or with those of the view in this window.
function M._on_target(run)
  local buf = vim.api.nvim_get_current_buf()
  if is_view(buf) then
    local client = M.client(buf)
    return client and run(vim.uri_from_bufnr(buf), '', buf, client)
  end
  at_cursor(buf, function(client, uri, name)
    run(uri, name, buf, client)
  end)
end

--- Lists what the compiler makes of the function at the cursor, pass by pass, and opens what is chosen: what a pass
--- changed, or the graph of a stage that is no pass. With `all` also the passes that changed nothing; with `check` the
--- graphs are run before and after each pass on random inputs, and the list says whether they compute the same.
---@param all boolean|nil
---@param check boolean|nil
function M.passes(all, check)
  local buf = vim.api.nvim_get_current_buf()
  at_cursor(buf, function(client, uri, name, is_pass)
    if is_pass then
      return execute(client, 'fxLsp.runPass', { uri, name }, buf)
    end
    local work = check and 'passes&check' or 'passes'
    local params = { command = 'fxLsp.passes', arguments = { uri, name, work } }
    compat.request(client, 'workspace/executeCommand', params, function(err, steps)
      if err or not steps then
        return err and warn(err.message)
      end
      local shown = vim.tbl_filter(function(step)
        return all or not step.unchanged
      end, steps)
      vim.ui.select(shown, { prompt = name, kind = 'fx-lsp', format_item = M._step }, function(step)
        local document = step and step.diff ~= vim.NIL and step.diff or step and step.uri
        if document then
          views.show_document(nil, { uri = document, takeFocus = true }, { client_id = client.id })
        end
      end)
    end, buf)
  end)
end

--- Opens a page about the function at the cursor: `stage` of some work with it.
---@param stage string
---@param work string
function M.page(stage, work)
  local buf = vim.api.nvim_get_current_buf()
  at_cursor(buf, function(client, uri, name)
    execute(client, 'fxLsp.showStage', { uri, name, stage, work }, buf)
  end)
end

--- One row of the list of passes.
function M._step(step)
  local change = step.change ~= '' and step.change or (step.ops > 0 and step.ops .. ' ops' or '')
  return string.format('%-34s %-14s %s', step.stage, change, step.note ~= '' and step.note or step.title)
end

--- Ends the tracing processes and traces again; starts the server where it is gone.
function M.restart()
  local clients = M.clients()
  for _, client in ipairs(clients) do
    execute(client, 'fxLsp.restart', {}, vim.api.nvim_get_current_buf())
  end
  for _, buf in ipairs(#clients == 0 and compat.files() or {}) do
    -- What started the server when the file was opened starts it again.
    vim.api.nvim_buf_call(buf, function()
      vim.cmd('doautocmd <nomodeline> FileType python')
    end)
  end
end

--- Asks whether the code of the workspace of this buffer may run.
function M.trust()
  M._on_workspace('fxLsp.trust')
end

--- Trusts the workspace of this buffer no longer: its tracing processes end, and none of its code runs.
function M.revoke_trust()
  M._on_workspace('fxLsp.revokeTrust')
end

--- Lets the user pick the interpreter that traces the workspace of this buffer, until the server ends.
function M.python()
  local buf = vim.api.nvim_get_current_buf()
  local client = M.client(buf)
  if not client then
    return warn('no server is running for this buffer')
  end
  local uri = vim.uri_from_bufnr(buf)
  local params = { command = 'fxLsp.interpreters', arguments = { uri } }
  compat.request(client, 'workspace/executeCommand', params, function(err, offered)
    if err then
      return warn(err.message)
    end
    vim.ui.select(offered, { prompt = 'Python', kind = 'fx-lsp', format_item = M._interpreter }, function(one)
      if one then
        execute(client, 'fxLsp.pickInterpreter', { uri, one.path }, buf)
      end
    end)
  end, buf)
end

--- One row of the list of interpreters.
function M._interpreter(one)
  local is = function(value)
    return value ~= nil and value ~= vim.NIL
  end
  local torch = is(one.torch) and one.torch or 'missing'
  local versions = is(one.version) and ('Python %s, torch %s'):format(one.version, torch)
  local said = is(one.problem) and one.problem or versions
  return (one.used and '* ' or '  ') .. one.path .. ' · ' .. one.reason .. (said and ' · ' .. said or '')
end

function M._on_workspace(command)
  local buf = vim.api.nvim_get_current_buf()
  local client = M.client(buf)
  if not client then
    return warn('no server is running for this buffer')
  end
  execute(client, command, { vim.uri_from_bufnr(buf) }, buf)
end

--- Shows or hides the inlay hints of a buffer.
---@param buf integer|nil
function M.toggle_hints(buf)
  hints.toggle(current(buf))
end

--- Shows or hides the costs of the lines of a buffer.
---@param buf integer|nil
function M.toggle_heat(buf)
  heat.toggle(current(buf))
end

--- Asks for the lenses of a buffer again.
---@param buf integer|nil
function M.refresh_lenses(buf)
  buf = current(buf)
  local client = M.client(buf)
  if client and client.initialized and (not is_view(buf) or views.has_lenses(buf)) then
    -- Not `codelens.refresh()`: it asks no more once a server has died without an answer.
    local params = { textDocument = { uri = vim.uri_from_bufnr(buf) } }
    compat.request(client, 'textDocument/codeLens', params, vim.lsp.codelens.on_codelens, buf)
  end
end

return M
