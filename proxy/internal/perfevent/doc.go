// Package perfevent samples the CPU time of processes by perf_event_open(2): stacks of their threads with the frames
// of the kernel, as a profile in the format of pprof. The runtime's own profiles have frames of the program alone.
package perfevent
