"""Files: their schema, reading and writing HDF5, and one module for each kind of file."""
