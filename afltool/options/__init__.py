"""The options of stages, a module each group; `base` says what a class of options is."""
