"""Who may do what: keys, roles and PCs, and how they are let in or kept out."""
