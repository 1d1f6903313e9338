//! What becomes of the features: statistics, PCA, files, the summary.
