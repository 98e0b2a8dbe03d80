//! Reclamation seen from one thread; the races are in `loom_tests`.
