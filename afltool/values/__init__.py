"""What travels between the stages: statistics, clients, phases, digests, names."""
