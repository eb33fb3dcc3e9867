"""The papers' result tables, transcribed: method, dataset, setting, local_size, mean, std, speedup; percent."""
