--- Inlay hints, on Neovim 0.10 and later.
---
--- After a refresh Neovim may draw the old hints once more before the answer is there, and then takes the new ones for
--- drawn. So hints are enabled anew, which draws none until an answer comes, and only the last answer counts.

local M = {}

local METHOD = 'textDocument/inlayHint'

M.handlers = not vim.lsp.inlay_hint and {}
  or {
    ['workspace/inlayHint/refresh'] = function(_, _, ctx)
      for _, buf in ipairs(vim.lsp.get_buffers_by_client_id(ctx.client_id)) do
        if vim.api.nvim_buf_is_loaded(buf) and vim.lsp.inlay_hint.is_enabled({ bufnr = buf }) then
          vim.lsp.inlay_hint.enable(true, { bufnr = buf })
        end
      end
      return vim.NIL
    end,
    [METHOD] = function(err, result, ctx, config)
      local client = vim.lsp.get_client_by_id(ctx.client_id)
      for id, request in pairs(client and client.requests or {}) do
        local newer = request.type == 'pending' and request.method == METHOD and request.bufnr == ctx.bufnr
        if newer and id ~= ctx.request_id then
          return
        end
      end
      return vim.lsp.handlers[METHOD](err, result, ctx, config)
    end,
  }

--- Shows the hints of a buffer that the server was attached to, unless its user wants none.
function M.attach(buf)
  if vim.lsp.inlay_hint and vim.bo[buf].buftype == '' and vim.g.fx_lsp_hints ~= false then
    vim.lsp.inlay_hint.enable(true, { bufnr = buf })
  end
end

--- Shows or hides the hints of a buffer.
function M.toggle(buf)
  if not vim.lsp.inlay_hint then
    return vim.notify('fx-lsp: inlay hints need Neovim 0.10', vim.log.levels.WARN)
  end
  vim.lsp.inlay_hint.enable(not vim.lsp.inlay_hint.is_enabled({ bufnr = buf }), { bufnr = buf })
end

return M
