//! Where results go: files in one of the formats, one or many, committed as one.
