"""Pure functions from the model to what an editor shows; they never see LSP."""
