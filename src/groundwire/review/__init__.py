"""What people see of the gate and do to it: the board, the actions, who may, and how often they agree."""
