"""What a run leaves: its folder, atomic storage, reading it back."""
