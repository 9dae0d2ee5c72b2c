"""Networks of the course, one file each; import what you need: `from hpcdl.nn.lenet import lenet5`."""
