"""What people get of the node while the cloud is away: other forms of its copies, partial lists, discovery."""
