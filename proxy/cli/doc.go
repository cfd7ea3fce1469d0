// Package cli is what the command lines of Penstock's programs have in common: the environment
// of a process as a value, exit codes, errors of usage, and the values of flags. A command is a
// struct for github.com/alecthomas/kong with a method Run(*Env) error.
package cli
