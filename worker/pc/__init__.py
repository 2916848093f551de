"""What a PC has and is: its memory, its speed, what others use of it, and by which address others reach it."""
