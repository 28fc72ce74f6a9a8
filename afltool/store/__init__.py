"""Files: the schema, HDF5 that is whole or refused, feature files, provenance."""
