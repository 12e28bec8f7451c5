"""Room: what did the person touch, what should they see? Gradio lives here, and no arithmetic does."""
