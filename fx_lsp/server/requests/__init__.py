"""Requests, notifications and commands: what a client asks or tells, and how it is answered."""
