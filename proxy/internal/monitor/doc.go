// Package monitor logs failures while a load balancer serves: upstreams of which no endpoint
// is usable, and counters that should not rise, such as that of refused clients.
//
// It has neither goroutines nor clocks: its owner looks about once a second, under one lock
// and with a clock of its own. The number of lines is bounded, however many upstreams fail and
// however often.
package monitor
