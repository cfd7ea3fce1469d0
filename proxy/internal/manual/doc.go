// Package manual writes man pages from a command line: one for the program, and one for each command with its
// subcommands. They are man(7), for groff and mandoc.
package manual
