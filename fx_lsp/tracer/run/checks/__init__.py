"""Mistakes that run: each check follows the torch calls of one run, and tells of what is wrong or wasteful."""
