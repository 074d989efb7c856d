-- The tutorial from page to page, in one session: what each page says of an editor is done, and what it shows is read.
local drive = dofile(vim.env.FX_DRIVE)
local result = drive.result

local function lens(text, part)
  return drive.wait('a lens with ' .. part, function()
    local shown = drive.lens(text)
    return shown:find(part, 1, true) and shown
  end)
end

local function hints(part)
  return drive.wait('a hint with ' .. part, function()
    local shown = drive.hints()
    return table.concat(vim.tbl_values(shown), '\n'):find(part, 1, true) and shown
  end)
end

drive.run(function()
  -- 1. A model, 2. Its graph
  drive.open(vim.env.FX_FILE)
  result.lenses = {}
  local definitions = {
    rms_norm = 'def rms_norm',
    FeedForward = 'class FeedForward',
    Classifier = 'class Classifier',
    __main__ = 'if __name__',
  }
  for name, text in pairs(definitions) do
    result.lenses[name] = lens(text, ' ops forward')
  end
  drive.click('def rms_norm', 'graphs', 'show forward graph')
  result.forward = drive.graph('aten.rsqrt').text
  drive.click('def rms_norm', 'graphs', 'show backward graph')
  result.backward = drive.graph('def backward(').text
  result.hover = drive.hover('torch.rsqrt', 'rsqrt')
  result.hints = vim.lsp.inlay_hint and hints('f32[8, 32, 1]')[tostring((drive.line('scale = ')))] or nil

  -- 3. A mistake
  local model = drive.source
  vim.cmd('only')
  drive.open(vim.fn.fnamemodify(vim.env.FX_FILE, ':h') .. '/mistake.py')
  local function mistakes()
    local shown = drive.problems()
    return #shown > 0 and shown
  end
  result.mistake = drive.wait('the mistake', mistakes)
  result.partial = vim.lsp.inlay_hint and hints('f32[8, 32, 64]')[tostring((drive.line('x = self.block')))] or nil
  drive.replace('2 * width', 'width')
  drive.wait('no mistake', function()
    return #drive.problems() == 0 and drive.lens('class Classifier'):find('ops forward', 1, true)
  end)
  drive.replace('nn.Linear(width', 'nn.Linear(2 * width')
  drive.wait('the mistake again', mistakes)

  -- 4. Its memory
  drive.source = model
  vim.cmd('buffer ' .. model)
  drive.go('x = self.block(x)')
  vim.cmd('normal! V')
  vim.ui.select = function(items, options, choose)
    result.actions = vim.tbl_map(options.format_item, items)
    for _, item in ipairs(items) do
      if options.format_item(item):find('call it through torch.utils.checkpoint', 1, true) then
        return choose(item)
      end
    end
  end
  -- The other file is a program that calls the model: until its targets are traced again, there is no action.
  local asked = 0
  drive.wait('a checkpoint', function()
    if drive.text(model):find('checkpoint(', 1, true) then
      return true
    end
    if vim.loop.now() - asked > 3000 then
      asked = vim.loop.now()
      vim.lsp.buf.code_action()
    end
  end)
  vim.cmd('normal! \27')
  result.checkpointed = drive.text(model)
  result.saved = lens('class Classifier', 'saves 66 KiB')
  vim.cmd('FxSummary')
  vim.cmd('buffer ' .. model)
  vim.cmd('undo')
  lens('class Classifier', 'saves 643 KiB')

  -- 5. A kernel
  drive.click('def rms_norm', 'graphs', 'generate Triton kernel')
  result.kernel = drive.shown('%.triton%.py', 'tl.store(')
end)
