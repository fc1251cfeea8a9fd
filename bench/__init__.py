"""Side-by-side measurements: ratios of two ways taken in one run, medians of several."""
