"""Who knows the house: `planning` decides what comes next, `searching` finds the way there."""
