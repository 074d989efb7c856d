"""The user's program as it is loaded: what the target needs of it, without effects outside or what is missing."""
