"""The broker's storage on disk: the journal, large values beside it, and checks that both are whole."""
