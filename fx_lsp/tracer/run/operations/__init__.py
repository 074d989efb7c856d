"""Implement operations differently on fake tensors: recurrent layers, operations on lengths, grouped products."""
