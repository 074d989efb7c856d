return require('fx_lsp').config()
