"""The network head: layers with ReLU that `baseline` trains; no federation can begin with it."""
