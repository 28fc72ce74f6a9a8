"""What people see: tables and pictures."""
