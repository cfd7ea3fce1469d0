// Package wasm runs unknown modules of WebAssembly under bounds: linear memory, stack,
// tables and time. It stands on wazero.
//
// A [Module] is compiled to machine code, or interpreted where memory may not be made executable
// ([feature.ExecutableMemory]). Each [Instance] of it has its own memory. A call that traps, that takes
// longer than it may, that wants more memory than it may have, or that recurses too deeply, ends with an
// error that errors.Is separates ([ErrTrap], [ErrTimeout], [ErrMemory], [ErrStack], [ErrExit]), and its
// instance is of no further use.
//
// wazero looks at the deadline of a call at the head of each loop alone, and bounds the stack of compiled code
// at 400 MB. So a module without loops could run for years, with code in which Go's scheduler cannot stop it,
// and the whole process would wait at the next garbage collection. Therefore each function is entered through
// another one, made by [Compile], that looks at the deadline once in a while, and accounts for the stack.
//
// Nothing here logs. Files, sockets, environment and arguments are not there for a module; its standard output
// goes to a writer of the caller's.
package wasm
