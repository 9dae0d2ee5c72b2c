"""What is measured beside ours: other programs and libraries, and what one writes first."""
