"""Pictures and films of what an agent does: which skills, drawn how, filmed how."""
