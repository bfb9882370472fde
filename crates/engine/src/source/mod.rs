//! Where rows come from: files found, formats told, schemas inferred, splits cut and read.
