"""Which configurations of a project a parameter may mean."""
