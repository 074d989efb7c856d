"""Handle requests, notifications and commands of a client."""
