"""The parts of one picker, in the order in which they are built. Each assembly gets the finished
ones before it; an earlier one names the callbacks that a later one sets."""
