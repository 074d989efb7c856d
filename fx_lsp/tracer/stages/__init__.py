"""What stages besides AOTAutograd's graphs are made with: their registry, and the ledger of a graph under passes."""
