"""Reference 5's routes (`/sandboxes...`), on the same core. They translate, and decide nothing."""
