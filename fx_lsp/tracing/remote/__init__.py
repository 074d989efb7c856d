"""Run benchmarks on other machines: the hosts, the connections, and the history of jobs."""
