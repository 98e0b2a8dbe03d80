//! Models of reclamation: the memory of what a reader found is not written while the reader may use it.
