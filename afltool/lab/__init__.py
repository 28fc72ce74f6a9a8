"""What stands beside the core and enters by its plug-in entry points: studies, baselines."""
