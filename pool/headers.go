package pool

// Headers returns a Config for a pool of arrays of n slice headers, as gathered
// writes need them (net.Buffers is one). The pool holds the [][]byte by value,
// so neither Get nor Put allocates, and Put clears every header of the array, up
// to its capacity: an idle array keeps nothing that it once pointed at alive.
//
// Get returns an array with the length that it was put with: begin with h[:0].
// Put refuses one whose capacity is not n, which means that append has moved it
// or that it was sliced from its middle, as net.Buffers.WriteTo does: keep the
// original for Put. An n below one means one. The caller may set MaxIdle,
// MinIdle and IdleTime.
func Headers(n int) Config[[][]byte] {
	n = max(n, 1)
	return Config[[][]byte]{
		New: func() ([][]byte, error) { return make([][]byte, 0, n), nil },
		Reset: func(h [][]byte) bool {
			if cap(h) != n {
				return false
			}
			clear(h[:n])
			return true
		},
	}
}
