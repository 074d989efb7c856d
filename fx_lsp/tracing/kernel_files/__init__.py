"""Manage a user's files of kernels: the generated versions, and their merge with newly generated kernels."""
