"""The schedulers, one module or package per policy; they are independent of the world that runs them."""
