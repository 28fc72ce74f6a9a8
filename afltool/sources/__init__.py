"""Where features come from: images, embeddings of other programs, backbones and extraction."""
