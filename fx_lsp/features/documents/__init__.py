"""Render graphs as documents, fold what repeats in them, and compare them."""
