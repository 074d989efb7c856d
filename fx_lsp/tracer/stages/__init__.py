"""Manage stages besides AOTAutograd's graphs: the registry of works that produce them, and the ledger of a graph under
passes.
"""
