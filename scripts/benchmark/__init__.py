"""The loads of `scripts/bench`. `program` is the command; each other module is one load, or shared by loads."""
