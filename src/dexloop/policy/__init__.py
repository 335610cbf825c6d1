"""What a policy sees and does, the contract that both rest on, its network, and the bundle it is kept in."""
