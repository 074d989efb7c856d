if vim.g.loaded_fx_lsp or vim.fn.has('nvim-0.7') == 0 then
  return
end
vim.g.loaded_fx_lsp = true

local function command(name, run, options)
  vim.api.nvim_create_user_command(name, run, options)
end

command('FxGraph', function(args)
  require('fx_lsp').graph(args.args ~= '' and args.args or nil)
end, {
  nargs = '?',
  desc = 'Show a graph of the function at the cursor',
  complete = function(lead)
    return vim.tbl_filter(function(stage)
      return vim.startswith(stage, lead)
    end, { 'forward', 'backward', 'joint', 'inference' })
  end,
})
command('FxKernel', function(args)
  if args.bang then
    return require('fx_lsp').save_kernel(args.args ~= '' and args.args or nil)
  end
  local is_choice = function(word)
    return word:find('=', 1, true) ~= nil
  end
  local words = vim.tbl_filter(function(word)
    return not is_choice(word)
  end, args.fargs)
  require('fx_lsp').kernel(words[1], words[2], vim.tbl_filter(is_choice, args.fargs))
end, {
  bang = true,
  nargs = '*',
  desc = 'Show the Triton kernels of the function at the cursor, or their compiled code for a chip; with ! save them',
  complete = function(lead, line)
    if line:find('FxKernel!') then
      return vim.fn.getcompletion(lead, 'file')
    end
    local chips = { 'cuda:80', 'cuda:86', 'cuda:89', 'cuda:90', 'cuda:100', 'cuda:120', 'hip:gfx90a', 'hip:gfx942' }
    local forms = { 'ttir', 'ttgir', 'llir', 'ptx', 'sass', 'amdgcn', 'resources' }
    local choices = {
      'engine=inductor',
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
    local words = vim.list_extend(line:find('FxKernel!?%s+%S+%s') and chips or forms, choices)
    return vim.tbl_filter(function(word)
      return vim.startswith(word, lead)
    end, words)
  end,
})
command('FxPasses', function(args)
  require('fx_lsp').passes(args.bang, args.args == 'check')
end, {
  bang = true,
  nargs = '?',
  desc = 'Choose a compiler pass to show; with ! also passes that changed nothing',
  complete = function()
    return { 'check' }
  end,
})
command('FxDebug', function()
  require('fx_lsp').page('aliasing', 'debug')
end, { desc = 'Show mutations, aliases and duplicate inputs of the function at the cursor' })
command('FxBreaks', function()
  require('fx_lsp').page('breaks', 'breaks')
end, { desc = 'List the torch.compile graphs of the function at the cursor, and the graph breaks' })
command('FxRecompiles', function()
  require('fx_lsp').page('recompiles', 'recompiles')
end, { desc = 'List the calls of the function at the cursor that torch.compile compiles again' })

command('FxFusion', function(args)
  require('fx_lsp').page(args.bang and 'fusion:inductor' or 'fusion', 'fusion')
end, { bang = true, desc = 'List the kernels of the function at the cursor and why they are not one (!: of Inductor)' })
command('FxSummary', function()
  require('fx_lsp').page('summary')
end, { desc = 'Show the cost of the function at the cursor, by submodule and by line' })
command('FxPartitions', function()
  require('fx_lsp').page('table', 'partitions')
end, { desc = 'Compare what partitioners save for backward and recompute' })
command('FxBench', function(args)
  if args.bang then
    return require('fx_lsp').stop_bench()
  end
  require('fx_lsp').bench(args.args)
end, {
  bang = true,
  nargs = '*',
  desc = 'Measure the function at the cursor; with ! stop measuring',
  complete = function(lead)
    return require('fx_lsp.bench').complete(lead, require('fx_lsp').client())
  end,
})
command('FxBenchByLine', function(args)
  require('fx_lsp').bench_by_line(args.args)
end, {
  nargs = '*',
  desc = 'Measure each line of the function at the cursor in eager PyTorch',
  complete = function(lead)
    return require('fx_lsp.bench').complete(lead, require('fx_lsp').client())
  end,
})
command('FxHeat', function()
  require('fx_lsp').toggle_heat()
end, { desc = 'Show or hide what each line of this buffer costs' })
command('FxRestart', function()
  require('fx_lsp').restart()
end, { desc = 'Trace everything again in fresh processes' })
command('FxPython', function()
  require('fx_lsp').python()
end, { desc = 'Pick the interpreter that traces this workspace' })
command('FxTrust', function()
  require('fx_lsp').trust()
end, { desc = 'Ask whether the code of this workspace may run' })
command('FxRevokeTrust', function()
  require('fx_lsp').revoke_trust()
end, { desc = 'Trust this workspace no longer: none of its code runs' })
command('FxToggleHints', function()
  require('fx_lsp').toggle_hints()
end, { desc = 'Show or hide the shapes in this buffer' })

local group = vim.api.nvim_create_augroup('fx_lsp', {})
local function on(event, pattern, callback)
  vim.api.nvim_create_autocmd(event, { group = group, pattern = pattern, callback = callback })
end

on('BufReadCmd', 'fx-lsp:/*', function(args)
  require('fx_lsp.views').read(args.buf)
end)
on('CursorMoved', '*', function(args)
  require('fx_lsp.related').follow(args.buf)
end)
on({ 'BufEnter', 'CursorHold', 'InsertLeave' }, '*', function(args)
  if vim.bo[args.buf].filetype == 'python' then
    require('fx_lsp').refresh_lenses(args.buf)
  end
end)
if vim.lsp.inlay_hint then
  on('LspAttach', '*', function(args)
    local client = vim.lsp.get_client_by_id(args.data.client_id)
    if client and client.name == 'fx_lsp' then
      require('fx_lsp.hints').attach(args.buf)
    end
  end)
end
