"""Stages besides AOTAutograd's graphs: the registry of works that make them, and the ledger of a graph under passes."""
