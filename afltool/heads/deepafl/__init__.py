"""DeepAFL: residual layers of random features, each solved in closed form over two rounds."""
