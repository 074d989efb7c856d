"""Find mistakes in code that runs: each check follows the torch calls of one run, and reports wrong or
wasteful ones.
"""
