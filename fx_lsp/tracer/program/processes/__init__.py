"""Simulate the processes that a program starts or expects: launchers, groups, remote calls."""
