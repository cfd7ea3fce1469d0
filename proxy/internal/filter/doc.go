// Package filter asks modules of WebAssembly about clients, before they get an endpoint, and has them rewrite
// streams: a subset of the L4 part of proxy-wasm's interface, version 0.2.1 (https://github.com/proxy-wasm/spec).
// The lists of its functions, properties and answers are in docs/filters.md.
//
// A [Filter] is one module with its configuration and its instances. [Filter.Ask] never waits: the module runs
// on goroutines of the filter's, one for each instance at most, and clients beyond that wait in order. An
// instance that traps, takes longer than it may, or wants more memory than it may have, is thrown away. The
// goroutine then rests for four times as long as the instance and its successor have taken, so that a module
// that always fails has a fifth of a CPU for each instance, and no more.
//
// A [Rewriter] is one module too. Each [Stream] of it has an instance of its own, from its first bytes to its end,
// which no other stream has had or gets. The module runs on goroutines of the Rewriter's, a chunk of a stream at a
// time, in the order in which chunks have come.
package filter
