"""Who may do what: keys, roles, PCs, and how they are let in and kept out."""
