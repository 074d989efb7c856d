"""The processes that a program starts or expects to be among: launchers, groups, remote calls."""
