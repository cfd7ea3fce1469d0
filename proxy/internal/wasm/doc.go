// Package wasm runs unknown WebAssembly modules within bounds: linear memory, stack, tables and time. It uses wazero.
//
// A [Module] is compiled to machine code, or interpreted if memory may not be made executable ([feature.ExecutableMemory]).
// Each [Instance] has its own memory. A call that traps, takes too long, wants too much memory, or recurses too deeply ends
// with an error that errors.Is tells apart ([ErrTrap], [ErrTimeout], [ErrMemory], [ErrStack], [ErrExit]), and its instance
// cannot be used any more.
//
// wazero looks at the deadline of a call only at the head of each loop, and bounds the stack of compiled code at 400 MB. So
// a module without loops could run for years, in code that Go's scheduler cannot stop, and the whole process would wait at
// the next garbage collection. Therefore each function is entered through another one, made by [Compile], that looks at the
// deadline once in a while, and accounts for the stack.
//
// Nothing here logs. A module has no files, sockets, environment and arguments; its standard output goes to a writer of the
// caller.
package wasm
