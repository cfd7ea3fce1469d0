// Package process runs the parts of a benchmark as separate processes, so that the processor time of each part can
// be measured. It makes sure that no process outlives the benchmark, however the benchmark ends. It is for Linux
// only.
package process
