--- What differs between versions of Neovim.

local uv = vim.uv or vim.loop

local M = {}

--- A request to one client, on any version.
function M.request(client, method, params, handler, buf)
  if vim.fn.has('nvim-0.11') == 1 then
    return client:request(method, params, handler, buf)
  end
  return client.request(method, params, handler, buf)
end

--- The answer to a request, which is waited for; nil where it takes longer than `ms`.
function M.request_sync(client, method, params, ms)
  if vim.fn.has('nvim-0.11') == 1 then
    return client:request_sync(method, params, ms)
  end
  return client.request_sync(method, params, ms)
end

--- The running clients of a name, or all.
---@param name string|nil
function M.clients(name)
  local all = (vim.lsp.get_clients or vim.lsp.get_active_clients)()
  return vim.tbl_filter(function(client)
    return name == nil or client.name == name
  end, all)
end

--- The Python files that are open.
function M.files()
  return vim.tbl_filter(function(buf)
    return vim.api.nvim_buf_is_loaded(buf) and vim.bo[buf].filetype == 'python' and vim.bo[buf].buftype == ''
  end, vim.api.nvim_list_bufs())
end

--- The closest folder above a path that holds one of `markers`, else the path's own folder.
function M.root(path, markers)
  local own = vim.fn.fnamemodify(path, ':p:h')
  local folder = own
  while true do
    for _, marker in ipairs(markers) do
      if uv.fs_stat(folder .. '/' .. marker) then
        return folder
      end
    end
    local parent = vim.fn.fnamemodify(folder, ':h')
    if parent == folder then
      return own
    end
    folder = parent
  end
end

return M
