// Package filter asks WebAssembly modules about clients before they get an endpoint, and lets modules rewrite
// streams. It implements a subset of the L4 part of proxy-wasm's interface, version 0.2.1
// (https://github.com/proxy-wasm/spec). docs/filters.md lists its functions, properties and answers.
//
// A [Filter] is one module with its configuration and its instances. [Filter.Ask] never waits: the module runs on
// goroutines of the filter, at most one for each instance, and further clients wait in order. An instance that traps,
// exceeds its time, or wants too much memory is thrown away. The goroutine then rests for four times as long as the
// instance and its successor have taken. So a module that always fails takes at most a fifth of a CPU per instance.
//
// A [Rewriter] runs one module too. Each [Stream] has its own instance, from its first bytes to its end; no other
// stream uses it before or after. The module runs on goroutines of the Rewriter, one chunk of a stream at a time, in
// the order in which the chunks came.
package filter
