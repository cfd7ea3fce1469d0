// Package completion completes command lines in bash, zsh and fish. [Script] is what a shell reads; it asks
// the program itself, which answers by [Line.Complete] with the commands, flags and values of its command line
// and with the names that a running process has.
//
// An answer is a line for each word that may stand at that place, with its description behind a tab, and then
// one of the lines "=files", "=directories" and "=words": whether names of files, or of directories, may stand
// there too.
package completion
