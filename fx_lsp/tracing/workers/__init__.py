"""Processes in the user's interpreter: which Python, how it is started, limited, asked, and how it ends."""
