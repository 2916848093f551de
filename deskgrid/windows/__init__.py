"""Weekly windows: what people write, and the times that it stands for. The broker and workers read them."""
