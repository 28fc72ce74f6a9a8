"""Quality of scores: counts that add up, and figures of weighted rows with intervals."""
