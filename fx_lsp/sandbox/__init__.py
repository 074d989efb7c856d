"""Confine processes that run code of a workspace: files, network, programs and signals, by the operating system.

The standard library only: it runs in the user's interpreter before anything else, and in the server.
"""
