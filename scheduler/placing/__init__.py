"""One pass: which waiting task goes to which slot, in turn and within a budget."""
