//! One seeded stream of commands through every store and through a plain shelf.
